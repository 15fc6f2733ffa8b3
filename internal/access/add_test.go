package access

import (
	"strings"
	"testing"
)

const addition = `[credential.more]
kind = "bearer"
origin = "https://more.example"
[capability."http:more.read"]
credential = "more"
methods = ["GET"]
paths = ["/v1"]
`

func TestAdd(t *testing.T) {
	for name, file := range map[string]string{"to a file": good, "to nothing": "", "without a last newline": strings.TrimRight(good, "\n")} {
		text, err := Add([]byte(file), []byte(addition))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(string(text), strings.TrimRight(file, "\n")) || !strings.HasSuffix(string(text), addition) {
			t.Errorf("%s: the person's own text was changed:\n%s", name, text)
		}
		diff := mustParse(t, string(text)).Diff(mustParse(t, file))
		if !strings.Contains(diff, "+ credential.more") || strings.Contains(diff, "\n- ") || strings.Contains(diff, "\n~ ") {
			t.Errorf("%s: %s", name, diff)
		}
		again, err := Add(text, []byte(addition))
		if err != nil || string(again) != string(text) {
			t.Errorf("%s: adding it again: %v", name, err)
		}
	}
}

// TestAddReplacesNothing: what is applied is not changed by an addition, also
// where only a part of it is there.
func TestAddReplacesNothing(t *testing.T) {
	file, err := Add([]byte(good), []byte(addition))
	if err != nil {
		t.Fatal(err)
	}
	for name, part := range map[string]string{
		"another place":                 strings.Replace(addition, "more.example", "evil.example", 1),
		"other methods":                 strings.Replace(addition, `["GET"]`, `["GET", "DELETE"]`, 1),
		"another place for what is new": strings.NewReplacer("more.example", "evil.example", "more.read", "more.write").Replace(addition),
	} {
		text, err := Add(file, []byte(part))
		if err == nil || !strings.Contains(err.Error(), "is applied already") || text != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, capability, _ := strings.Cut(addition, "[capability")
	capability = "[capability" + strings.Replace(capability, "more.read", "more.write", 1)
	for name, part := range map[string]string{"one more table": addition + capability, "one table of two": strings.Replace(addition, "more.read", "more.write", 1)} {
		text, err := Add(file, []byte(part))
		if err != nil || string(text) != strings.TrimRight(string(file), "\n")+"\n\n"+capability {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	dotted := "capability.\"http:more.write\" = { credential = \"more\", methods = [\"GET\"], paths = [\"/v2\"] }\n"
	for _, part := range []string{dotted + "credential.more.kind = \"bearer\"\ncredential.more.origin = \"https://more.example\"\n", "credential = { more = { kind = \"bearer\", origin = \"https://more.example\" } }\n" + dotted} {
		if text, err := Add(file, []byte(part)); err == nil && !mustParse(t, string(text)).says(mustParse(t, string(file)+dotted).describe()) {
			t.Errorf("of tables without headings it made\n%s", text)
		}
	}
	if _, err := Add(file, []byte(addition[strings.Index(addition, "[capability"):])); err == nil {
		t.Error("an addition that refers to something outside of it")
	}
	if _, err := Add(file, []byte("nonsense")); err == nil {
		t.Error("nonsense was added")
	}
	if _, err := Add([]byte("credential = { x = { kind = \"bearer\", origin = \"https://x.example\" } }\n"), []byte(addition)); err == nil {
		t.Error("a table was added to one that is closed")
	}
}
