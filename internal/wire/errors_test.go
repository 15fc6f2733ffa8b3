package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// codes returns the values of the constants whose names begin with prefix, as
// they stand in the source: a new one cannot be forgotten.
func codes(t *testing.T, prefix string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range v.Names {
			if lit, ok := valueAt(v, i); ok && strings.HasPrefix(name.Name, prefix) {
				found[name.Name] = lit
			}
		}
		return true
	})
	return found
}

func valueAt(v *ast.ValueSpec, i int) (string, bool) {
	if i >= len(v.Values) {
		return "", false
	}
	lit, ok := v.Values[i].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// TestEachCodeHasAdvice: one sentence for the agent, one next step for the
// person, and no advice for a code that is none.
func TestEachCodeHasAdvice(t *testing.T) {
	errors, reasons := codes(t, "Code"), codes(t, "Reason")
	if len(errors) != 19 || len(reasons) != 10 {
		t.Fatalf("%d error codes and %d reasons: does docs/protocol.md have them all?", len(errors), len(reasons))
	}
	for name, code := range errors {
		checkAdvice(t, name, code)
	}
	for name, code := range reasons {
		checkAdvice(t, name, code)
	}
	if len(advice) != len(errors)+len(reasons) {
		t.Errorf("%d codes, %d sentences", len(errors)+len(reasons), len(advice))
	}
}

func checkAdvice(t *testing.T, name, code string) {
	t.Helper()
	message, next := Advice(code)
	for _, s := range []string{message, next} {
		if !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, ")") || len(s) < 8 || strings.Contains(s, "\n") {
			t.Errorf("%s: %q is no sentence", name, s)
		}
	}
	if e := NewError(code); e.Message != message || e.NextStep != next || e.Code != code {
		t.Errorf("%s: %+v", name, e)
	}
	if r := NewReason(code, "Detail."); r.Message != message+" Detail." || r.NextStep != next {
		t.Errorf("%s: %+v", name, r)
	}
}

func TestCloses(t *testing.T) {
	closes := map[string]bool{CodeProtocolError: true, CodeFrameTooLarge: true, CodeProtocolUnsupported: true, CodeAttributionFailed: true}
	for _, code := range codes(t, "Code") {
		if NewError(code).Closes() != closes[code] {
			t.Errorf("%s closes: %v", code, !closes[code])
		}
	}
}
