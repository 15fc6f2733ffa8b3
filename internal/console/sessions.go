package console

import (
	"net/http"
	"slices"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// sessionView is one session in the list.
type sessionView struct {
	wire.Session
	Program string
	PID     int
	SHA256  string
	Shim    bool
	Live    bool
	Claims  []claim
}

// maxEnded bounds how many ended sessions are listed: the ledger has them all.
const maxEnded = 30

func (c *Console) viewSessions(w http.ResponseWriter, r *http.Request, o *opened) {
	if !reading(w, o) {
		return
	}
	l, fail := ask[wire.List[wire.Session]](o.page, wire.MethodSessionList, wire.Empty{})
	if fail != nil {
		refuse(w, fail)
		return
	}
	var live, ended []sessionView
	for _, s := range slices.Backward(l.Items) {
		v := sessionOf(s)
		switch {
		case v.Live:
			live = append(live, v)
		case len(ended) < maxEnded:
			ended = append(ended, v)
		}
	}
	c.render(w, "sessions.html", map[string]any{"Live": live, "Ended": ended, "Hidden": l.Hidden, "Now": time.Now()})
}

func sessionOf(s wire.Session) sessionView {
	p := s.Caller.Subject()
	v := sessionView{Session: s, Program: approval.Escape(programOf(p.Kernel.ExePath), 300), PID: p.Kernel.PID, SHA256: p.Filesystem.SHA256,
		Shim: s.Caller.Agent != nil, Live: s.State != "ended"}
	claims := approval.ClaimedOf(s.Caller, "")
	for i, a := range claims.Process.Argv {
		claims.Process.Argv[i] = approval.Escape(a, 300)
	}
	claims.Process.Script, claims.Process.Cwd = approval.Escape(claims.Process.Script, 300), approval.Escape(claims.Process.Cwd, 300)
	v.Claims = claimsOf(claims)
	return v
}
