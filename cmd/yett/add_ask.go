package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/broker"
	"github.com/yett-broker/yett/internal/preset"
	"github.com/yett-broker/yett/internal/wire"
)

// prepareService is for a preset that knows what reads and what writes.
func (a *app) prepareService(ctx context.Context, p preset.Preset, o addOptions) (addition, error) {
	d := addition{preset: p, name: orElse(o.name, p.Name)}
	origin := orElse(o.origin, p.Origin)
	if origin == "" {
		var err error
		if origin, err = a.answer(ctx, "Where is your "+p.Title+"? (https://host[:port]): ", "--origin", ""); err != nil {
			return d, err
		}
	}
	d.tables = p.Tables(d.name, origin, o.private)
	if !o.noTest {
		d.trial = trialOf(p, d.name)
	}
	if err := checkTables(d.tables); err != nil {
		return d, err
	}
	a.guide(p, origin)
	return d, nil
}

// guide says where a token is made and what is enough.
func (a *app) guide(p preset.Preset, origin string) {
	a.note("%s (%s): the value is a %s, made at: %s", p.Title, approval.Printable(origin), p.Token, approval.Printable(p.PageAt(origin)))
	a.note("Enough for an agent:")
	for _, s := range p.Scopes {
		a.note("  - %s", s)
	}
}

// prepareAPI is for an API that no preset knows: the person says what agents
// may ask for.
func (a *app) prepareAPI(ctx context.Context, p preset.Preset, o addOptions) (addition, error) {
	p.Title, p.As = "The API", o.as
	d := addition{preset: p, name: o.name}
	var err error
	if d.name == "" {
		d.name, err = a.goodAnswer(ctx, "A short name for it: ", "--name", func(name string) error { return checkSoFar(p, name, "https://a.example") })
		if err != nil {
			return d, err
		}
	}
	if o.origin == "" {
		o.origin, err = a.goodAnswer(ctx, "Its place (https://host[:port]): ", "--origin", func(origin string) error { return checkSoFar(p, d.name, origin) })
		if err != nil {
			return d, err
		}
	}
	if len(o.paths) == 0 {
		text, err := a.answer(ctx, "Paths that agents may ask for (* is one segment, ** the rest; several with spaces): ", "--path", "")
		if err != nil {
			return d, err
		}
		o.paths = strings.Fields(text)
	}
	if len(o.methods) == 0 {
		o.methods = []string{"GET", "HEAD"}
		if o.name == "" && !a.json { // whoever gave no flags is asked
			text, err := a.answer(ctx, "Methods (others than GET, HEAD and OPTIONS are asked for each time) [GET HEAD]: ", "--method", "GET HEAD")
			if err != nil {
				return d, err
			}
			o.methods = strings.Fields(text)
		}
	}
	if o.header != "" {
		p.Kind, p.Header, p.Prefix = access.KindHeader, o.header, o.prefix
	} else if o.prefix != "" {
		return d, usageError{errors.New("--prefix needs --header")}
	}
	for i, m := range o.methods {
		o.methods[i] = strings.ToUpper(m)
	}
	p.Read, p.Write = rulesOf(o.methods, o.paths)
	d.preset, d.tables = p, p.Tables(d.name, o.origin, o.private)
	if i := slices.IndexFunc(o.paths, func(s string) bool { return !strings.Contains(s, "*") }); i >= 0 && !o.noTest && slices.Contains(o.methods, "GET") {
		get := "GET"
		d.trial = &trialAction{capability: p.Capabilities(d.name)[0], action: client.Action{Method: &get, Path: &o.paths[i]}, anyAnswer: true}
	}
	return d, checkTables(d.tables)
}

// checkSoFar finds what is wrong with a name and a place before more is asked.
func checkSoFar(p preset.Preset, name, origin string) error {
	p.Read = &preset.Rules{Methods: []string{"GET"}, Paths: []string{"/"}}
	return checkTables(p.Tables(name, origin, false))
}

// rulesOf parts methods: those of RFC 9110 that change nothing are granted for
// a session, the rest is asked for each time.
func rulesOf(methods, paths []string) (read, write *preset.Rules) {
	var safe, unsafe []string
	for _, m := range methods {
		if slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, m) {
			safe = append(safe, m)
		} else {
			unsafe = append(unsafe, m)
		}
	}
	if len(safe) > 0 {
		read = &preset.Rules{Methods: safe, Paths: paths}
	}
	if len(unsafe) > 0 {
		write = &preset.Rules{Methods: unsafe, Paths: paths}
	}
	return read, write
}

// checkTables finds what is wrong with answers and flags before a value is
// asked for.
func checkTables(tables []byte) error {
	_, err := access.Parse(tables)
	var problems access.Problems
	if !errors.As(err, &problems) {
		return err
	}
	said := make([]string, len(problems))
	for i, p := range problems {
		said[i] = p.Key + ": " + p.Message
	}
	return wire.Errorf(wire.CodeBadRequest, "It cannot be added:\n%s", strings.Join(said, "\n")).
		Then("Correct what is named; docs/access-file.md explains each key. For more than yett add can say, write an access file: yett apply.")
}

// checkNewValue refuses a value that would be refused later, before anything is
// applied for it.
func checkNewValue(d addition) error {
	policy, err := access.Parse(d.tables)
	if err != nil {
		return err
	}
	c, ok := policy.Credential(d.name)
	if !ok || d.generate {
		return nil
	}
	why := broker.CheckValue(c, d.value)
	if why == nil {
		return nil
	}
	return wire.Errorf(wire.CodeBadRequest, "The value cannot be used: %v; nothing was changed.", why).
		Then("Run it again and give the whole value, without what surrounds it.")
}

// readValue reads the value without echo, from a descriptor, or from standard
// input.
func (a *app) readValue(ctx context.Context, d addition, fd int) ([]byte, error) {
	from := a.stdin
	if fd >= 0 {
		f, err := inherited(fd, false)
		if err != nil {
			return nil, err
		}
		from = f
	} else if term.IsTerminal(int(a.stdin.Fd())) {
		return askHidden(ctx, "Value of "+d.name+" ("+d.preset.Token+"): ")
	}
	value, err := readBounded(from)
	if err == nil && len(value) == 0 {
		return nil, wire.Errorf(wire.CodeBadRequest, "No value was given; nothing was changed.").
			Then("Run it in a terminal, or give the value by --value-fd or on standard input.")
	}
	return value, err
}

// readBounded reads a value to its end.
func readBounded(from *os.File) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(from, maxSecret+1))
	if err != nil {
		clear(value)
		return nil, wire.Errorf(wire.CodeBadRequest, "The value cannot be read: %v.", err)
	}
	if len(value) > maxSecret {
		clear(value)
		return nil, wire.Errorf(wire.CodeBadRequest, "The value is longer than %d bytes.", maxSecret).
			Then("Check what it is read from.")
	}
	return value, nil
}

// goodAnswer asks again, a few times, where an answer cannot be used.
func (a *app) goodAnswer(ctx context.Context, question, flag string, check func(string) error) (string, error) {
	for range askedAgain {
		text, err := a.answer(ctx, question, flag, "")
		if err != nil {
			return "", err
		}
		if err = check(text); err == nil {
			return text, nil
		}
		var fail *wire.Error
		if !errors.As(err, &fail) {
			return "", err
		}
		_, problems, _ := strings.Cut(fail.Message, "\n")
		first, _, _ := strings.Cut(problems, "\n")
		a.note("%s", approval.Printable(first))
	}
	return "", usageError{fmt.Errorf("nothing usable was answered; %s gives it too", flag)}
}

// answer asks for what no flag gave. An empty answer is the fallback.
func (a *app) answer(ctx context.Context, question, flag, fallback string) (string, error) {
	missing := usageError{fmt.Errorf("%s is missing, and there is no terminal to ask on", flag)}
	if a.json {
		return "", missing
	}
	line, err := ask(ctx, question, false)
	var fail *wire.Error
	if errors.As(err, &fail) && fail.Code == wire.CodeProofRequired { // no terminal
		return "", missing
	}
	if err != nil {
		return "", err
	}
	text := orElse(strings.TrimSpace(string(line)), fallback)
	if text == "" {
		return "", usageError{fmt.Errorf("nothing was answered; %s gives it too", flag)}
	}
	return text, nil
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
