package broker

import (
	"errors"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/wire"
)

func (b *Broker) executeSSH(way *sending, open *unlocked, op *operation, secret []byte) outcome {
	host, _ := open.policy.Host(op.plan.Capability.Host)
	signer, err := sshexec.ParseKey(secret)
	if err != nil {
		return notSent("the stored key "+host.Key+" cannot be used: "+err.Error(), replace(host.Key))
	}
	target := sshexec.Target{Address: host.Address.String(), User: host.User, HostKeys: host.HostKeys, Private: host.Private,
		Session: op.session.ID, Begin: way.begin, Sent: way.sent, Quiet: way.quiet}
	res, err := b.SSH.Do(way.ctx, target, signer, *op.request.SSH)
	if err != nil {
		var e *sshexec.Error
		if !errors.As(err, &e) || e.MaybeSent {
			return op.maybeSent(err.Error())
		}
		if way.stopped() {
			return stopped(op.session)
		}
		next := ""
		switch e.Code {
		case sshexec.CodeHostKey:
			next = "The person must find out whether the host's key was changed on purpose; host_keys in the access file names what is trusted."
		case sshexec.CodeAuth:
			next = "The person must let the key in at the host (authorized_keys of " + host.User + "), or run: yett secret rotate " + host.Key
		}
		return failedBefore(e.Code, e.Cause, next)
	}
	ref := activityRef(op.intentRow())
	op.ch.refs.put(ref, res.Stdout)
	op.ch.refs.put(ref+"/stderr", res.Stderr)
	out := outcome{state: action.Completed, result: wire.SSHResult{
		Exit:      wire.SSHExit{Status: res.Exit.Status, Signal: res.Exit.Signal, Unknown: res.Exit.Unknown},
		StdoutRef: ref, StdoutSize: int64(len(res.Stdout)), StdoutTruncated: res.StdoutTruncated,
		StderrRef: ref + "/stderr", StderrSize: int64(len(res.Stderr)), StderrTruncated: res.StderrTruncated}}
	if res.Exit.Unknown {
		out.state, out.reason = action.Indeterminate, unknownOutcome(op.record.Unsafe)
	}
	return out
}
