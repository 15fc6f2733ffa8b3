package broker

import (
	"bytes"
	"errors"
	"reflect"
	"slices"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// showAccess lists what may be asked for; every session may read the same.
func (o *operator) showAccess() (any, *wire.Error) {
	open := o.b.state()
	if open == nil {
		return wire.AccessListResult{Capabilities: []wire.Access{}}, nil
	}
	return listPolicy(open.policy), nil
}

// apply replaces the applied access file. A dry run says what would change and
// needs no proof.
func (o *operator) apply(r wire.AccessApply, m wire.Managed) (any, *wire.Error) {
	b := o.b
	open := b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	text, next, fail := o.nextFile(r)
	if fail != nil {
		return nil, fail
	}
	before, err := b.Vault.Secrets()
	if err != nil {
		return nil, o.vaultFailed("listing the credentials", err)
	}
	result := wire.AccessApplied{Difference: next.Diff(open.policy), Warnings: []string{}, Voided: []string{}, Missing: []string{}}
	for _, loss := range losses(before, next) {
		result.Difference += "! the value of " + loss.name + " is lost: " + loss.why + "\n"
		result.Voided = append(result.Voided, loss.name)
	}
	if !r.DryRun {
		if fail := o.checkProof(wire.MethodAccessApply, m); fail != nil {
			return nil, fail
		}
		if fail := o.row("access.applied", map[string]any{"difference": result.Difference}, nil); fail != nil {
			return nil, fail
		}
		var over *access.Policy // what an addition was made to
		if r.Add {
			over = open.policy
		}
		voided, fail := o.replacePolicy(next, text, over)
		if fail != nil {
			o.row("access.applied", nil, map[string]any{"code": fail.Code})
			return nil, fail
		}
		result.Voided = append([]string{}, voided...)
	}
	infos, err := b.Vault.Secrets()
	if err != nil {
		return nil, o.vaultFailed("listing the credentials", err)
	}
	for _, c := range next.Credentials() {
		if !slices.ContainsFunc(infos, func(i vault.SecretInfo) bool { return i.Name == c.Name && i.Set }) {
			result.Missing = append(result.Missing, c.Name)
			result.Warnings = append(result.Warnings, "the credential "+c.Name+" has no value yet: yett secret set "+c.Name)
		}
	}
	return result, nil
}

// nextFile returns the file that is to be applied, and what it says.
func (o *operator) nextFile(r wire.AccessApply) ([]byte, *access.Policy, *wire.Error) {
	text := []byte(r.File)
	if r.Add {
		applied, err := o.b.Vault.Policy()
		if err != nil {
			return nil, nil, o.vaultFailed("reading the applied access file", err)
		}
		if text, err = access.Add(applied, text); err != nil {
			return nil, nil, badFile(err)
		}
	}
	next, err := access.Parse(text)
	if err != nil {
		return nil, nil, badFile(err)
	}
	return text, next, nil
}

// accessText returns the file that is applied, comments and all.
func (o *operator) accessText() (any, *wire.Error) {
	text, err := o.b.Vault.Policy()
	if err != nil {
		return nil, o.vaultFailed("reading the applied access file", err)
	}
	if fail := o.row("access.read", nil, nil); fail != nil {
		return nil, fail
	}
	return wire.AccessText{File: string(text)}, nil
}

// testAccess says what the applied file says to an action, were its capability
// granted. Whoever may list the capabilities may ask.
func (o *operator) testAccess(r wire.AccessTest) (any, *wire.Error) {
	open := o.b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	c, ok := open.policy.Capability(r.Capability)
	if !ok {
		return wire.AccessTested{Code: access.CodeUnknown, Message: "there is no such capability"}, nil
	}
	request, refusal := r.Action.Of(c.Kind, r.Capability)
	if refusal != nil {
		return wire.AccessTested{Code: refusal.Code, Message: refusal.Detail}, nil
	}
	d := open.policy.Decide(func(string) bool { return true }, request)
	return wire.AccessTested{Allowed: d.Allowed, Code: d.Code, Message: d.Detail, Confirm: c.Confirm}, nil
}

type loss struct{ name, why string }

// losses names the stored values that the vault will void when next is applied.
func losses(stored []vault.SecretInfo, next *access.Policy) []loss {
	var out []loss
	for _, s := range stored {
		c, ok := next.Credential(s.Name)
		switch {
		case !s.Set:
		case !ok:
			out = append(out, loss{s.Name, "the file declares it no longer"})
		case c.Kind != s.Kind:
			out = append(out, loss{s.Name, "it is of another kind now and must be set again"})
		case c.Place() != s.Place && c.Kind != access.KindSSHKey:
			out = append(out, loss{s.Name, "it was sealed to " + s.Place + " and must be set again"})
		}
	}
	return out
}

// badFile names every problem of an access file with its line.
func badFile(err error) *wire.Error {
	e := wire.Errorf(wire.CodeBadRequest, "The access file has problems:\n%v", err)
	e.NextStep = "Correct these lines and apply it again; nothing was changed."
	var ps access.Problems
	if errors.As(err, &ps) {
		list := make([]map[string]any, len(ps))
		for i, p := range ps {
			list[i] = map[string]any{"line": p.Line, "key": p.Key, "message": p.Message}
		}
		e.With("problems", list)
	}
	return e
}

// replacePolicy saves the file and takes back every grant and card whose
// capability now says something else than its card did. What was made from the
// policy over is refused when another was applied meanwhile.
func (o *operator) replacePolicy(next *access.Policy, text []byte, over *access.Policy) ([]string, *wire.Error) {
	b := o.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	if over != nil && b.open.policy != over {
		return nil, wire.Errorf(wire.CodeBusy, "Another access file was applied at the same moment; this one was not.").
			Then("Run it again.")
	}
	var declared []vault.Declared
	for _, d := range next.Declared() {
		declared = append(declared, vault.Declared{Name: d.Name, Kind: d.Kind, Place: d.Place})
	}
	voided, err := b.Vault.Apply(text, declared)
	if err != nil {
		return nil, o.vaultFailed("applying the access file", err)
	}
	changed := changedCapabilities(b.open.policy, next)
	fresh := *b.open
	fresh.policy = next
	b.open = &fresh
	b.tokens.forget()
	b.SSH.CloseKept() // of hosts that may read differently now
	for _, s := range b.sessions.All() {
		s.Void(changed)
	}
	b.queue.WithdrawIf(func(i *approval.Item) bool {
		return slices.ContainsFunc(i.Capabilities, func(c string) bool { return slices.Contains(changed, c) })
	}, wire.ReasonRevoked)
	return voided, nil
}

// sameCredential reports whether a credential is declared alike: other scopes, a
// proxy or another kind make a grant another one, though no card shows them.
func sameCredential(old, next *access.Policy, name string) bool {
	a, _ := old.Credential(name)
	b, _ := next.Credential(name)
	return reflect.DeepEqual(a, b)
}

// changedCapabilities names the capabilities of old that next lacks or that
// read differently on a card.
func changedCapabilities(old, next *access.Policy) []string {
	var changed []string
	for _, c := range old.Capabilities() {
		n, ok := next.Capability(c.Name)
		if !ok || n.Confirm != c.Confirm || n.Repeat != c.Repeat ||
			!bytes.Equal(marshal(cardCapability(old, c.Name)), marshal(cardCapability(next, c.Name))) || !sameCredential(old, next, c.Credential) {
			changed = append(changed, c.Name)
		}
	}
	return changed
}
