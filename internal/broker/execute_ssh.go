package broker

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/bodies"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/localfile"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/wire"
)

func (b *Broker) executeSSH(way *sending, open *unlocked, op *operation, secret []byte) outcome {
	host, _ := open.policy.Host(op.plan.Capability.Host)
	target, signer, failed := b.sshWay(open, op, secret)
	if failed != nil {
		return *failed
	}
	target.Begin, target.Sent, target.Quiet = way.begin, way.sent, way.quiet
	if c := op.request.Copy; c != nil {
		hostKey := ""
		out := b.copyFile(way, op, c, host, func(t sshexec.Transfer) (*sshexec.Copied, error) {
			done, err := b.SSH.Copy(way.ctx, target, signer, t)
			if err == nil {
				hostKey = done.HostKey
			}
			return done, err
		})
		if out.row == nil {
			out.row = sshRow(open.policy, host, hostKey)
		}
		return out
	}
	res, err := b.SSH.Do(way.ctx, target, signer, *op.request.SSH)
	if err != nil {
		return op.sshFailed(way, host, err)
	}
	out := b.ran(op, res)
	out.row = sshRow(open.policy, host, res.HostKey)
	return out
}

// ran is the outcome of a command that the host began to run.
func (b *Broker) ran(op *operation, res *sshexec.Result) outcome {
	r := wire.SSHResult{
		Exit:       wire.SSHExit{Status: res.Exit.Status, Signal: res.Exit.Signal, Unknown: res.Exit.Unknown},
		StdoutSize: int64(len(res.Stdout)), StdoutTruncated: res.StdoutTruncated,
		StderrSize: int64(len(res.Stderr)), StderrTruncated: res.StderrTruncated,
		LeftOpen: res.LeftOpen}
	var lost [4]string
	r.StdoutRef, lost[0] = b.keepAll(op, bodies.Body, res.Stdout)
	r.StderrRef, lost[1] = b.keepAll(op, bodies.Stderr, res.Stderr)
	if res.StdoutTruncated {
		r.StdoutTotal = res.StdoutTotal
		r.StdoutTailRef, lost[2] = b.keepAll(op, bodies.StdoutTail, res.StdoutTail)
	}
	if res.StderrTruncated {
		r.StderrTotal = res.StderrTotal
		r.StderrTailRef, lost[3] = b.keepAll(op, bodies.StderrTail, res.StderrTail)
	}
	r.NotKept = cmp.Or(lost[:]...)
	out := outcome{state: action.Completed, result: r}
	if res.Exit.Unknown {
		out.state, out.reason = action.Indeterminate, unknownOutcome(op.record.Unsafe)
	}
	return out
}

// sshFailed is the outcome of an action without a complete result.
func (op *operation) sshFailed(way *sending, host access.Host, err error) outcome {
	var e *sshexec.Error
	if !errors.As(err, &e) || e.MaybeSent {
		return op.maybeSent(err.Error())
	}
	if way.stopped() {
		return stopped(op.session)
	}
	return failedBefore(e.Code, e.Cause, sshRefused(host, e))
}

// copyFile opens the local side of a copy and has transfer do the rest. A file
// that comes from the host takes effect here, when it gets its name.
func (b *Broker) copyFile(way *sending, op *operation, c *action.Copy, host access.Host, transfer func(sshexec.Transfer) (*sshexec.Copied, error)) outcome {
	may := op.plan.Capability
	dir := may.LocalDirectory(c.Local)
	apart, err := b.apart(c.Direction)
	if err != nil {
		return notSent(err.Error(), "")
	}
	t := sshexec.Transfer{Remote: c.Remote, Overwrite: c.Overwrite, MaxSize: may.MaxSize, Timeout: c.Timeout}
	if c.Direction == action.Up {
		from, err := localfile.Open(dir, c.Local, apart)
		if err != nil {
			return notOpened(err)
		}
		defer from.Close()
		if info, err := from.Stat(); err == nil && info.Size() > may.MaxSize {
			return notSent((&sshexec.TooLongError{Limit: may.MaxSize}).Error(), "")
		}
		t.Source = from
		done, err := transfer(t)
		if err != nil {
			return op.copyFailed(way, host, err)
		}
		return op.copied(c, done, done.Replaced)
	}
	to, err := localfile.Create(dir, c.Local, c.Overwrite, apart)
	if err != nil {
		return notOpened(err)
	}
	defer to.Close()
	t.Sink = to
	done, err := transfer(t)
	if err != nil {
		return op.copyFailed(way, host, err)
	}
	if err := way.begin(); err != nil {
		return op.copyFailed(way, host, &sshexec.Error{Code: sshexec.CodeUpstream, Cause: err})
	}
	replaced, err := to.Place(c.Overwrite)
	switch {
	case err != nil && to.Placed():
		return op.maybeSent(err.Error())
	case err != nil:
		return notSent(err.Error(), localNext)
	}
	return op.copied(c, done, replaced)
}

// apart is from and to where nothing is copied: Yett's own directories, and where
// a copy would be written that of its programs.
func (b *Broker) apart(direction string) (localfile.Apart, error) {
	own := localfile.Apart{Trees: b.Location.Own()}
	if direction == action.Up {
		return own, nil
	}
	programs, err := endpoint.Programs()
	if err != nil {
		return own, fmt.Errorf("finding Yett's own programs: %w", err)
	}
	own.Directories = []string{programs}
	return own, nil
}

// notOpened is the outcome of a copy whose local side cannot be used.
func notOpened(err error) outcome {
	if errors.Is(err, localfile.ErrKeptOut) {
		return notSent("the local path lies in Yett's own directory, or in that of its programs, where no file is copied", "")
	}
	return notSent(err.Error(), localNext)
}

const localNext = "Look at the local path: it must be a regular file in one of the directories that list_access shows, without symbolic links on the way."

// copyFailed says of a copy that failed or was stopped what it leaves behind.
func (op *operation) copyFailed(way *sending, host access.Host, err error) outcome {
	if part, ok := errors.AsType[*sshexec.PartError](err); ok {
		out := op.maybeSent(part.Error())
		out.reason.Message = "The file did not get its place: " + strings.TrimSuffix(part.Error(), ".") + "."
		out.reason.NextStep = "Ask again if the copy is still needed: nothing at the file's place was changed."
		return out
	}
	out := op.sshFailed(way, host, err)
	if out.state == action.Denied {
		out.reason = wire.NewReason(out.reason.Code, "The copy was stopped; no file was put in its place.")
		out.row = map[string]any{"cause": err.Error()}
	}
	return out
}

func (op *operation) copied(c *action.Copy, done *sshexec.Copied, replaced bool) outcome {
	return outcome{state: action.Completed, result: wire.CopyResult{Direction: c.Direction, Local: c.Local, Remote: c.Remote,
		Size: done.Size, SHA256: fmt.Sprintf("%x", done.SHA256), Replaced: replaced}}
}
