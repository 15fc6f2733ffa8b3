package main

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/review"
	"github.com/yett-broker/yett/internal/wire"
)

// TestA6_MissingCell: without any one of its cells, or with one that leaves
// something unsaid, the matrix is not printed.
func TestA6_MissingCell(t *testing.T) {
	policy, err := access.Parse([]byte("[credential.a]\nkind = \"bearer\"\norigin = \"https://a.invalid\"\n" +
		"[credential.b]\nkind = \"bearer\"\norigin = \"https://b.invalid\"\n[capability.\"http:a\"]\ncredential = \"a\"\nmethods = [\"GET\"]\npaths = [\"/x\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := &review.Facts{Policy: policy, Secrets: wire.List[wire.Secret]{Items: []wire.Secret{{Name: "a", Place: "https://a.invalid:443"}, {Name: "b"}}}}
	r.Sessions.Items = []wire.Session{{SessionID: "s_1", State: "active", ExpiresAt: time.Now()}}
	whole := review.NewMatrix(r)
	if len(whole.Cells) != 8 {
		t.Fatalf("%d cells", len(whole.Cells))
	}
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	a := &app{stdout: &output{File: out}, stderr: out, json: true}
	prints := func(m review.Matrix) bool { return a.printMatrix(m) == nil }
	if !prints(whole) {
		t.Fatal("the whole matrix is refused")
	}
	for i := range whole.Cells {
		gap := whole
		gap.Cells = slices.Delete(slices.Clone(whole.Cells), i, i+1)
		if prints(gap) {
			t.Errorf("printed without %+v", whole.Cells[i])
		}
		gap.Cells = slices.Clone(whole.Cells)
		gap.Cells[i].Access = ""
		if prints(gap) {
			t.Errorf("printed with an unsaid %+v", gap.Cells[i])
		}
	}
	var table bytes.Buffer
	whole.Write(&table)
	if n := bytes.Count(table.Bytes(), []byte("\n")); n != 10 {
		t.Errorf("%d lines:\n%s", n, table.Bytes())
	}
}
