package yetttest

import (
	"strings"
	"testing"
)

// TestF1_WordsAtATerminal: what a newcomer types at a question is answered by
// what to do next, and no question is put whose answer would be refused.
func TestF1_WordsAtATerminal(t *testing.T) {
	b, _ := demoBroker(t)
	c := b.Granted("http:demo.each")
	op := c.asks("http:demo.each", map[string]any{"method": "GET", "path": "/each/x"})
	if op.State != "queued" {
		t.Fatalf("%+v", op)
	}
	id := b.WaitCard().ApprovalID

	p := b.typing(t, "approve", id, "--for", "30m")
	p.types("Yett passphrase: ", Passphrase)
	p.shows("This card is for one action")
	p.shows("next: Approve it: yett approve --home " + b.Home + " " + id + ".")
	p.exits(1)
	if strings.Contains(p.all(), "Type yes") {
		t.Errorf("it was asked before it was refused:\n%s", p.all())
	}
	if shown := b.Must("pending").Stdout; strings.Contains(shown, "--for") {
		t.Errorf("a length is offered for one action:\n%s", shown)
	}

	p = b.typing(t, "approve", id)
	p.types("Yett passphrase: ", "")
	p.types("That was empty. Yett passphrase: ", Passphrase)
	p.types("Type yes: ", "y")
	p.types("The whole word, please. Type yes: ", "no")
	p.shows("Nothing was approved; the card still waits.")
	p.shows("yett deny --home " + b.Home + " " + id)
	p.exits(3)

	if r := b.RunPlain("approve", id, "--for", "30"); r.Code != 2 || !strings.Contains(r.Stderr, "write 30m") {
		t.Errorf("exit %d\n%s", r.Code, r.Stderr)
	}

	p = b.typing(t, "activity")
	for range 3 {
		p.types("Yett passphrase: ", "")
	}
	p.shows("The answer was empty, 3 times.")
	p.exits(3)

	if r := b.RunPlain("lock"); r.Code != 0 {
		t.Fatalf("yett lock: %+v", r)
	}
	for _, command := range []string{"activity", "access list"} {
		p = b.typing(t, strings.Fields(command)...)
		p.shows("yett unlock")
		p.exits(0)
		if !strings.Contains(p.all(), "locked") || strings.Contains(p.all(), "run it in a terminal") {
			t.Errorf("%s:\n%s", command, p.all())
		}
	}
}

// TestF1_NothingToAskFor: where there is nothing to show, or nothing that a value
// could be for, that is said, and no passphrase is asked for.
func TestF1_NothingToAskFor(t *testing.T) {
	b := Start(t, "")
	for command, says := range map[string]string{
		"pending":            "Nothing waits.",
		"sessions":           "No session since this broker started.",
		"secret list":        "No credential is declared: yett add --home " + b.Home + " PRESET",
		"access list":        "Nothing is applied: yett add --home " + b.Home + " PRESET",
		"secret set none":    "none waits for no value",
		"secret remove none": "The access file declares no credential of this name",
	} {
		p := b.typing(t, strings.Fields(command)...)
		code := 0
		if strings.HasPrefix(command, "secret remove") {
			p.types("Yett passphrase: ", Passphrase)
		}
		if strings.HasPrefix(command, "secret ") && command != "secret list" {
			code = 1
		}
		p.shows(says)
		p.exits(code)
		if asked := strings.Contains(p.all(), "passphrase:"); asked != strings.HasPrefix(command, "secret remove") {
			t.Errorf("%s: asked for a passphrase: %v\n%s", command, asked, p.all())
		}
		if strings.Contains(p.all(), "NAME") {
			t.Errorf("%s: a next step names nobody:\n%s", command, p.all())
		}
	}
	wantExit(t, b.addWith(canary, "http", "--name", "demo", "--origin", "https://a.example", "--path", "/x", "--no-test"), 0)
	p := b.typing(t, "secret", "set", "demo")
	p.shows("yett secret rotate --home " + b.Home + " demo")
	p.exits(1)
	wantExit(t, b.Run("secret", "remove", "demo"), 0)
	p = b.typing(t, "secret", "rotate", "demo")
	p.shows("yett secret set --home " + b.Home + " demo")
	p.exits(1)
	p = b.typing(t, "secret", "list")
	p.types("Yett passphrase: ", Passphrase)
	p.shows("demo")
	p.exits(0)
}

// TestF1_AWrongAnswerIsAskedForAgain: with what is wrong with it, before more is
// asked; a value and a passphrase only when all of it can be added.
func TestF1_AWrongAnswerIsAskedForAgain(t *testing.T) {
	b := Start(t, "")
	p := b.typing(t, "add", "http")
	p.types("A short name for it: ", "My Thing")
	p.shows("a name has 1 to 64")
	p.types("A short name for it: ", "thing")
	p.types("Its place", "api.example.com")
	p.shows("must be scheme://host")
	p.types("Its place", "https://api.example.com")
	p.types("Paths", "v1/hello")
	p.types("Methods", "get")
	p.shows("It cannot be added:")
	p.exits(1)
	if strings.Contains(p.all(), "Value of") || strings.Contains(p.all(), "passphrase") {
		t.Errorf("it asked for more:\n%s", p.all())
	}
}
