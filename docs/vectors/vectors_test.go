package vectors

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/wire"
)

// TestTheReferenceHasEveryCode: the tables of docs/protocol.md are those of the
// code, sentence by sentence.
func TestTheReferenceHasEveryCode(t *testing.T) {
	doc, err := os.ReadFile("../protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.+?) \\| (.+?) \\|(?: (closes|stays open) \\|)?$").FindAllStringSubmatch(string(doc), -1)
	said := map[string][]string{}
	for _, r := range rows {
		said[r[1]] = r
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/wire/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		code := strings.Trim(lit.Value, `"`)
		message, next := wire.Advice(code)
		if message == "" {
			return true
		}
		codes++
		r := said[code]
		if r == nil || r[2] != message || r[3] != next {
			t.Errorf("docs/protocol.md does not say of %s: | %s | %s |", code, message, next)
			return true
		}
		if r[4] != "" && (r[4] == "closes") != wire.NewError(code).Closes() {
			t.Errorf("docs/protocol.md says that %s %s", code, r[4])
		}
		return true
	})
	if codes < 29 {
		t.Errorf("only %d codes were looked for", codes)
	}
}

// TestTheReferenceHasEveryMethod: no method of the agent's side is missing.
func TestTheReferenceHasEveryMethod(t *testing.T) {
	doc, err := os.ReadFile("../protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{wire.MethodHello, wire.MethodSessionOpen, wire.MethodSessionWait, wire.MethodSessionClose, wire.MethodAccessRequest,
		wire.MethodAccessList, wire.MethodActionRequest, wire.MethodOperationGet, wire.MethodOperationBody} {
		if !strings.Contains(string(doc), "\n### "+m+"\n") {
			t.Errorf("docs/protocol.md does not describe %s", m)
		}
	}
}
