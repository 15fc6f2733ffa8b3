package broker

import (
	"errors"
	"strings"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/httpexec"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// execute lends the credential to the executor for one call and names what
// came of it. Only perform calls it, behind a durable intent.
func (b *Broker) execute(open *unlocked, op *operation) outcome {
	defer b.use()()
	way := newSending(op.session)
	defer way.done()
	name, run := op.plan.Capability.Credential, func(secret []byte) outcome { return b.executeHTTP(way, open, op, secret) }
	if op.request.HTTP == nil {
		host, _ := open.policy.Host(op.plan.Capability.Host)
		name, run = host.Key, func(secret []byte) outcome { return b.executeSSH(way, open, op, secret) }
	}
	if cred, _ := open.policy.Credential(name); cred.Minted() {
		return b.minted(way, open, op, cred, run)
	}
	var out outcome
	err := b.lend(open, name, func(secret []byte) error {
		out = run(secret)
		return nil
	})
	if err != nil {
		return b.notLent(op, name, err)
	}
	return out
}

// lend lends the value of a credential for one call, for the place that the
// access file gives it.
func (b *Broker) lend(open *unlocked, name string, fn func(value []byte) error) error {
	declared, _ := place(open.policy, name)
	return b.Vault.Use(name, declared, fn)
}

// notSent is the outcome of an action that provably never left. The next step
// is empty where the cause alone says what to look at.
func notSent(why, nextStep string) outcome {
	return outcome{state: action.Completed, result: wire.NotSent{Error: why, NextStep: nextStep}}
}

// stopped is the outcome of an action that the end of its session or grant, or a
// pause, met before anything was sent.
func stopped(s *session.Session) outcome {
	code := wire.ReasonRevoked
	switch s.State() {
	case session.Paused:
		_, next := wire.Advice(wire.CodeLocked)
		return notSent("Yett was locked before anything was sent", next)
	case session.Active: // the grant has ended, or the vault was locked and opened again
		code = wire.ReasonCapabilityNotGranted
	}
	return outcome{state: action.Denied, reason: wire.NewReason(code, "Nothing was sent.")}
}

// replace is the next step when a stored value is of no use.
func replace(name string) string { return "The person must run: yett secret rotate " + name }

func (op *operation) maybeSent(why string) outcome {
	return outcome{state: action.Indeterminate, reason: unknownOutcome(op.record.Unsafe), row: map[string]any{"cause": why}}
}

// maxAnswerHeaders keeps a reply within one frame: JSON may write a byte as six.
const maxAnswerHeaders = 128 << 10

func (b *Broker) executeHTTP(way *sending, open *unlocked, op *operation, secret []byte) outcome {
	cred, _ := open.policy.Credential(op.plan.Capability.Credential)
	body := b.keep(op, bodies.Body)
	defer body.drop()
	target := httpexec.Target{Scheme: cred.Origin.Scheme, Host: cred.Origin.Host, Port: cred.Origin.Port,
		Private: cred.Private, Insecure: cred.Insecure, Session: op.session.ID, Body: body, Way: wayOf(cred),
		Begin: way.begin, Sent: way.sent, Quiet: way.quiet}
	res, err := b.HTTP.Do(way.ctx, target, sendable(cred, secret), *op.request.HTTP)
	if err != nil {
		var e *httpexec.Error
		if !errors.As(err, &e) || e.MaybeSent {
			return op.maybeSent(err.Error())
		}
		if way.stopped() {
			return stopped(op.session)
		}
		next := ""
		if e.Code == httpexec.CodeOutside {
			next = "Change or leave out what the message names, then ask again."
		}
		return failedBefore(e.Code, e.Cause, next)
	}
	ref, size, notKept := body.end()
	return outcome{state: action.Completed, result: wire.HTTPResult{Status: res.Status, Headers: answerHeaders(res.Headers),
		BodyRef: ref, Size: size, Truncated: res.Truncated, Partial: res.Partial, Redacted: res.Redacted,
		Withheld: res.Withheld, NotKept: notKept}}
}

// wayOf is what the access file says about connections to a credential's origin.
func wayOf(c access.Credential) httpexec.Way {
	w := c.Transport
	return httpexec.Way{CA: w.CA, Pins: w.Pins, HTTP1: w.HTTP1,
		Proxy: httpexec.Proxy{Scheme: w.Proxy.Scheme, Host: w.Proxy.Host, Port: w.Proxy.Port}}
}

// wayToTokens is the same for its token endpoint, whose key nobody pins.
func wayToTokens(c access.Credential) httpexec.Way {
	if c.OAuth.Endpoint.Scheme == "http" { // on this machine
		return httpexec.Way{}
	}
	w := wayOf(c)
	w.Pins = nil
	return w
}

// answerHeaders joins the values of one name, and leaves out what is too much.
func answerHeaders(all []action.Header) map[string]string {
	headers, size := map[string]string{}, 0
	for _, h := range all {
		if size += len(h.Name) + len(h.Value); size > maxAnswerHeaders {
			break
		}
		if old, ok := headers[h.Name]; ok {
			h.Value = old + ", " + h.Value
		}
		headers[h.Name] = h.Value
	}
	return headers
}

// failedBefore names a failure before anything was sent.
func failedBefore(code string, cause error, nextStep string) outcome {
	if code == wire.ReasonTargetBlocked {
		return outcome{state: action.Denied, reason: wire.NewReason(code, ""), row: map[string]any{"cause": cause.Error()}}
	}
	return notSent(strings.TrimSpace(cause.Error()), nextStep)
}

func (op *operation) intentRow() int64 {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.intent
}
