package screen

import (
	"bytes"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/approval"
)

// What is copied where, and in which direction, stands on a card in full; so do
// the terminal and the variables of a command.
func TestCardOfACopy(t *testing.T) {
	for name, c := range map[string]struct {
		request action.Request
		want    []string
		not     string
	}{
		"up": {action.Request{Copy: &action.Copy{Direction: action.Up, Local: "/home/ada/app.conf", Remote: "/srv/app/app.conf", Overwrite: true}},
			[]string{"copy      here: /home/ada/app.conf\n", "to        host: /srv/app/app.conf\n", "is replaced"}, "command"},
		"down": {action.Request{Copy: &action.Copy{Direction: action.Down, Local: "/home/ada/app.log", Remote: "/var/log/app.log"}},
			[]string{"copy      host: /var/log/app.log\n", "to        here: /home/ada/app.log\n"}, "is replaced"},
		"a terminal": {action.Request{SSH: &action.SSH{Command: "top", PTY: true, Env: []action.Variable{{Name: "LANG", Value: "C"}}}},
			[]string{"command   top\n", "terminal  yes\n", "variable  LANG=C\n"}, "copy"},
	} {
		var out bytes.Buffer
		printRequest(&out, approval.NewRequest("op_1", c.request))
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: the card lacks %q:\n%s", name, want, &out)
			}
		}
		if strings.Contains(out.String(), c.not) {
			t.Errorf("%s: the card says %q:\n%s", name, c.not, &out)
		}
	}
	var out bytes.Buffer
	printGranting(&out, approval.Granting{Capabilities: []approval.Capability{{Name: "ssh-copy:web1.app", Target: "deploy@web1:22",
		Copy: &approval.Copying{Direction: "both", Remote: []string{"/srv/app/*"}, Local: []string{"/home/ada/work"}, MaxSize: "64MiB", Overwrite: true}}}}, false)
	for _, want := range []string{"to the host and from it", "/srv/app/*", "/home/ada/work", "64MiB in a file", "may be replaced"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the card lacks %q:\n%s", want, &out)
		}
	}
}
