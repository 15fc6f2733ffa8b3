package broker

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// askTime bounds the whole question for the keys of a host. It is shorter than a
// command waits for an answer.
const askTime = 50 * time.Second

// hostKeys asks a host behind declared hosts for the keys that it shows. The
// person's proof opened it; what is shown is an answer for the person to compare
// and is listed nowhere. It ends when Yett is locked or the connection of whoever
// asked is closed. Before anything is dialled a row says what is asked.
func (o *operator) hostKeys(r wire.HostKeys) (any, *wire.Error) {
	ctx, cancel := context.WithTimeoutCause(o.provenWork(), askTime, errors.New("it took longer than "+askTime.String()))
	defer cancel()
	open := o.b.state()
	if open == nil {
		return nil, wire.NewError(wire.CodeLocked)
	}
	address, err := access.ParseAddress(r.Address)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "The address %s cannot be read: %v.", clip(r.Address), err)
	}
	via, way, fail := o.hops(open.policy, r.Jump)
	if fail != nil {
		return nil, fail
	}
	request := map[string]any{"address": address.String(), "via": way}
	if fail := o.row("host.asked", request, nil); fail != nil {
		return nil, fail
	}
	keys, err := o.b.SSH.HostKeys(ctx, address.String(), via)
	if err != nil {
		if fail := o.row("host.asked", request, map[string]any{"cause": err.Error()}); fail != nil {
			return nil, fail
		}
		return nil, hostNotAsked(address.String(), err)
	}
	var shown wire.ShownKeys
	var prints []string
	for _, k := range keys {
		shown.Keys = append(shown.Keys, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k))))
		prints = append(prints, k.Type()+" "+ssh.FingerprintSHA256(k))
	}
	if fail := o.row("host.asked", request, map[string]any{"keys": prints}); fail != nil {
		return nil, fail
	}
	return shown, nil
}

// hops are the hosts of a way, with their signers, and how a row names them.
func (o *operator) hops(p *access.Policy, jump []string) (via []sshexec.Hop, way []string, fail *wire.Error) {
	if len(jump) == 0 || len(jump) > access.MaxJumps {
		return nil, nil, wire.Errorf(wire.CodeBadRequest, "A way has at least one jump host and at most %d.", access.MaxJumps)
	}
	for _, name := range jump {
		if _, ok := p.Host(name); !ok {
			return nil, nil, wire.Errorf(wire.CodeBadRequest, "No host %s is declared.", clip(name)).
				Then("A jump host needs a [host.…] table of its own in the access file, with its key; see: yett access show")
		}
	}
	for _, h := range p.WayOver(jump) {
		hop, bad, err := o.b.hop(p, h)
		switch {
		case errors.Is(err, vault.ErrMissing):
			return nil, nil, wire.Errorf(wire.CodeBadRequest, "The key %s of the host %s has no value yet.", clip(h.Key), clip(h.Name)).
				Then("Give it one: yett secret set " + clip(h.Key) + ", or yett ssh keygen " + clip(h.Key))
		case err != nil:
			return nil, nil, o.vaultFailed("lending a key", err)
		case bad != nil:
			return nil, nil, wire.Errorf(wire.CodeBadRequest, "%s.", strings.ToUpper(bad.why[:1])+bad.why[1:]).Then(bad.next)
		}
		via, way = append(via, hop), append(way, h.String())
	}
	return via, way, nil
}

// hostNotAsked says why a host showed no keys.
func hostNotAsked(address string, err error) *wire.Error {
	e, _ := errors.AsType[*sshexec.Error](err)
	code, next := wire.CodeUnavailable, "Check host and port, and whether the jump host leads there."
	switch {
	case e.Code == sshexec.CodeHostKey:
		code = wire.ReasonDenied
		fallthrough
	case e.Hop != "" && e.Code == sshexec.CodeAuth:
		next = sshRefused(access.Host{}, e)
	case e.Code == sshexec.CodeTargetBlocked:
		code, next = wire.ReasonTargetBlocked, "The access file must name the private place: private = true in the table of the jump host."
	}
	return wire.Errorf(code, "The keys of %s cannot be asked for: %v.", approval.Escape(address, 200), approval.Escape(err.Error(), 400)).Then(next)
}
