package yetttest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestActivityReadsLikeALog: a line has number, time, kind, process and what it
// was about; a decision has the words of its card, an outcome leads to its
// intent; --last, --since and --session leave out what is not meant.
func TestActivityReadsLikeALog(t *testing.T) {
	b, _ := demoBroker(t)
	c := b.Open()
	c.OpenSession("http:demo.read")
	opened := c.Session.SessionID
	card := b.WaitCard()
	b.Approve(card, "--for", "30m")
	op := c.MustAct("http:demo.read", readX)
	if op.State != "completed" {
		t.Fatalf("%+v", op)
	}
	other := b.Open()
	other.OpenSession()

	var shown struct{ Tag string }
	must(t, json.Unmarshal(card.Card, &shown))
	text := b.Must("activity").Stdout
	var intent string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); f[3] == "intent" {
			intent = f[0]
		}
	}
	for _, want := range []string{
		"  decision         ", strings.ToUpper(shown.Tag) + "  until ", "http:demo.read  GET /v1/x",
		fmt.Sprintf("of %s:  HTTP 200", intent), "completed", "secret.set       tests ", "+ credential.demo",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	all := rowsOf(t, b.Must("activity", "--json"))
	for i, row := range all {
		if row.N != int64(i+1) {
			t.Fatalf("row %d has the number %d", i+1, row.N)
		}
	}
	for _, last := range []int{1, 3, len(all)} {
		got := rowsOf(t, b.Must("activity", "--json", "--last", fmt.Sprint(last)))
		if len(got) != last || got[0].N <= int64(len(all)-last) {
			t.Errorf("--last %d gave %d rows, from %d", last, len(got), got[0].N)
		}
	}
	session := rowsOf(t, b.Must("activity", "--json", "--session", opened))
	for _, row := range session {
		if row.SessionID != opened {
			t.Errorf("--session gave a row of %q", row.SessionID)
		}
	}
	if got := rowsOf(t, b.Must("activity", "--json", "--session", opened, "--last", "2")); len(session) < 4 || len(got) != 2 || got[1].N != session[len(session)-1].N {
		t.Errorf("of %d rows of the session the last two are %+v", len(session), got)
	}
	if got := rowsOf(t, b.Must("activity", "--json", "--since", "1d")); len(got) <= len(all) {
		t.Errorf("--since 1d gave %d rows of %d", len(got), len(all))
	}
	if r := b.Must("activity", "--since", "2120-01-01"); r.Stdout != "" || !strings.Contains(r.Stderr, "No such row.") {
		t.Errorf("%+v", r)
	}
	for _, wrong := range [][]string{{"--since", "yesterday"}, {"--since", "30"}, {"--last", "0"}, {"--last", "-1"}} {
		if r := b.RunPlain(append([]string{"activity"}, wrong...)...); r.Code != 2 {
			t.Errorf("%v: exit %d %s", wrong, r.Code, r.Stderr)
		}
	}
	if r := b.RunPlain("activity", "--last", "3", "--json"); r.Code != 0 || r.Stdout != "" {
		t.Errorf("without a proof: %+v", r)
	}
}

func rowsOf(t *testing.T, r Result) (rows []Row) {
	t.Helper()
	for line := range strings.Lines(r.Stdout) {
		var row Row
		must(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}
