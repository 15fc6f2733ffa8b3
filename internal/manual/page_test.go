package manual

import (
	"os/exec"
	"strings"
	"testing"
)

// TestTextIsNoCommand: text that looks like commands of the formatter comes out as
// it is.
func TestTextIsNoCommand(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skipf("%v", err)
	}
	hostile := ".so /etc/passwd\n'ab \\fB a-b `c` ~ ^"
	var page strings.Builder
	page.WriteString(".TH X 1\n.SH NAME\nx\n.SH A\n")
	writeText(&page, hostile)
	c := exec.Command(groff, "-man", "-Tascii", "-P-cbou")
	c.Stdin = strings.NewReader(page.String())
	out, err := c.Output()
	if more := roff("NAME…"); more != `NAME\[u2026]` {
		t.Errorf("an ellipsis is %s", more)
	}
	if got := strings.Join(strings.Fields(string(out)), " "); err != nil || !strings.Contains(got, strings.Join(strings.Fields(hostile), " ")) {
		t.Errorf("%v: %s", err, out)
	}
}
