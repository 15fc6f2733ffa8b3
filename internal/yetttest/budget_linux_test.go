package yetttest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// TestPromptBudget: a day with eight agents at work at once, six suspends, one
// update of the agent's program and three hundred calls costs the person at most
// twelve gestures, and no live session.
func TestPromptBudget(t *testing.T) {
	const agents, suspends, calls, most = 8, 6, 300, 12
	up := StartUpstream(t, canary)
	b := New(t)
	dir := programs(t)
	b.programsIn(dir)
	b.ServeArgs = []string{"--console=" + strconv.Itoa(freePort(t))}
	b.Serve()
	b.Unlock()
	b.Apply(up.Access())
	b.SetSecret("demo", canary)
	p := b.prover()
	laptop := p.mustEnrol("laptop")
	gestures, cards := 1, 0 // the unlocking in the morning
	ask := `{"capabilities":["http:demo.read","http:demo.write"],"purpose":"the day's work","wait_ms":0}`
	approve := func(hosts ...*host) {
		t.Helper()
		for _, h := range hosts {
			h.call("request_access", ask).wants(t, "pending: ")
		}
		waiting := b.waitCards(len(hosts))
		all, fail := p.approves(laptop, approval.ChoiceUntil, time.Now().Add(8*time.Hour).UTC().Truncate(time.Second), waiting...)
		if fail != nil {
			t.Fatal(fail)
		}
		for _, c := range all.Cards {
			if c.Error != nil {
				t.Fatalf("card %s: %v", c.ApprovalID, c.Error)
			}
		}
		gestures, cards = gestures+1, cards+len(waiting)
		for _, h := range hosts {
			h.call("request_access", strings.Replace(ask, `"wait_ms":0`, `"wait_ms":30000`, 1)).wants(t, "granted: ")
		}
	}
	hosts := make([]*host, agents)
	for i := range hosts {
		hosts[i] = b.agentIn(dir)
	}
	approve(hosts...)
	began := map[string]wire.Session{}
	for _, s := range b.Sessions() {
		if s.Caller.Role == wire.RoleShim {
			began[s.SessionID] = s
		}
	}
	work := func(n int) {
		t.Helper()
		var all sync.WaitGroup
		for i, h := range hosts {
			all.Go(func() {
				for k := range n/len(hosts) + (len(hosts)-1-i+n%len(hosts))/len(hosts) {
					method := "GET"
					if k%10 == 9 {
						method = "POST"
					}
					said := h.call("http_request", fmt.Sprintf(`{"capability":"http:demo.%s","method":%q,"path":"/v1/%d/%d"}`, map[string]string{"GET": "read", "POST": "write"}[method], method, i, k))
					if !strings.Contains(said.text, "completed: HTTP 200") {
						t.Errorf("agent %d, call %d: %.300s", i, k, said.text)
					}
				}
			})
		}
		all.Wait()
	}
	before := len(up.Seen())
	for n := range suspends {
		work(calls / (suspends + 1))
		b.manage(wire.MethodVaultPause, wire.Empty{}, nil, nil, nil)
		b.Unlock()
		gestures++
		if n == suspends/2 {
			replaceProgram(t, filepath.Join(dir, "agent"))
			fresh := b.agentIn(dir) // one agent is started anew; the others go on
			hosts = append(hosts, fresh)
			approve(fresh)
		}
	}
	work(calls - calls/(suspends+1)*suspends)
	if did := len(up.Seen()) - before; did < calls {
		t.Errorf("%d calls arrived", did)
	}
	for _, s := range b.Sessions() {
		if was, ok := began[s.SessionID]; ok {
			if s.State != "active" || !s.ExpiresAt.Equal(was.ExpiresAt) {
				t.Errorf("session %s: %s %s, until %v", s.SessionID, s.State, s.EndReason, s.ExpiresAt)
			}
			delete(began, s.SessionID)
		}
	}
	if len(began) != 0 || cards != agents+1 {
		t.Errorf("%d sessions were lost; %d cards", len(began), cards)
	}
	if gestures > most {
		t.Errorf("the day took %d gestures", gestures)
	}
	t.Logf("%d agents, %d suspends, one update, %d calls: %d cards, %d gestures", agents, suspends, calls, cards, gestures)
}
