package yetttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/vault"
	"github.com/yett-broker/yett/internal/wire"
)

// person decides cards for the vectors. It speaks to the broker as the command
// line does, but derives its keys only once.
type person struct {
	root   testing.TB // of all vectors
	t      testing.TB // of the running one
	b      *Broker
	ch     *Channel
	keys   *vault.Keys
	locked bool
	down   bool
	read   bool // reading is open on ch
}

func newPerson(b *Broker) *person {
	return &person{root: b.T, t: b.T, b: b, ch: b.Open()}
}

func (p *person) challenge() wire.Challenge {
	var c wire.Challenge
	p.ch.Must(wire.MethodVaultChallenge, map[string]any{"request": wire.Empty{}}, &c)
	if p.keys == nil {
		for _, s := range c.Slots {
			if s.Name == "passphrase" {
				keys, err := vault.Derive([]byte(Passphrase), vault.KDF{Salt: s.Salt, Time: s.Time, MemoryKiB: s.MemoryKiB, Threads: s.Threads})
				if err != nil {
					p.t.Fatal(err)
				}
				p.keys = keys
			}
		}
	}
	return c
}

// call makes a management request, with a proof over message where there is one.
func (p *person) call(method string, request, result any, message func(nonce string, raw []byte) []byte) {
	p.t.Helper()
	p.ch.b.T = p.t
	raw, err := json.Marshal(request)
	if err != nil {
		p.t.Fatal(err)
	}
	m := wire.Managed{Request: raw}
	if message != nil {
		nonce := p.challenge().Nonce
		m.Proof = &wire.Proof{Nonce: nonce, MAC: vault.Proof(p.keys.Approval, message(nonce, raw))}
	}
	p.ch.Must(method, m, result)
}

func (p *person) openReading() {
	if !p.read {
		p.call(wire.MethodActivityRead, wire.Empty{}, nil, func(nonce string, raw []byte) []byte {
			return approval.ProofMessage(wire.MethodActivityRead, raw, nonce)
		})
		p.read = true
	}
}

// card returns the newest waiting card of a channel, once it has one.
func (p *person) card(channelID string) wire.Approval {
	p.t.Helper()
	p.openReading()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		var l wire.List[wire.Approval]
		p.call(wire.MethodApprovalList, wire.Empty{}, &l, nil)
		for i := len(l.Items) - 1; i >= 0; i-- {
			if strings.Contains(string(l.Items[i].Card), `"`+channelID+`"`) {
				return l.Items[i]
			}
		}
	}
	p.t.Fatal("no card came")
	return wire.Approval{}
}

// do takes one step of a vector: see docs/vectors/README.md.
func (p *person) do(r *running, where, what string) {
	r.t.Helper()
	p.t = r.t
	words := strings.Fields(what)
	switch words[0] {
	case "approve":
		c := p.card(r.vars[words[1]+".channel"])
		a := wire.Approve{ApprovalID: c.ApprovalID, CardDigest: c.CardDigest, Choice: approval.ChoiceOnce}
		if words[2] != "once" {
			d, err := time.ParseDuration(words[2])
			if err != nil {
				r.t.Fatalf("%s: %v", where, err)
			}
			a.Choice, a.Until = approval.ChoiceUntil, time.Now().Add(d)
		}
		p.call(wire.MethodApprovalApprove, a, nil, func(nonce string, _ []byte) []byte {
			return approval.DecisionMessage(a.CardDigest, a.Choice, a.Until, nonce)
		})
	case "deny":
		p.call(wire.MethodApprovalDeny, wire.ApprovalID{ApprovalID: p.card(r.vars[words[1]+".channel"]).ApprovalID}, nil, nil)
	case "revoke":
		p.call(wire.MethodSessionRevoke, wire.Revoke{SessionID: words[1]}, nil, nil)
	case "lock":
		p.call(wire.MethodVaultLock, wire.Empty{}, nil, nil)
		p.locked, p.read = true, false
	case "pause":
		p.call(wire.MethodVaultPause, wire.Empty{}, nil, nil)
		p.locked, p.read = true, false
	case "unlock":
		p.unlock()
	case "stop":
		p.call(wire.MethodBrokerStop, wire.Empty{}, nil, nil)
		p.b.cmd.Wait()
		p.b.cmd, p.down = nil, true
	case "restart":
		p.b.Kill()
		p.down = true
		p.restore(r.t)
	default:
		r.t.Fatalf("%s: nobody knows how to %s", where, what)
	}
}

func (p *person) unlock() {
	p.t.Helper()
	if p.keys == nil { // a challenge that is not answered counts for a while
		p.challenge()
	}
	key := append([]byte{}, p.keys.Unlock...)
	p.call(wire.MethodVaultUnlock, wire.Unlock{Slot: "passphrase", UnlockKey: key}, nil, nil)
	p.locked = false
}

// restore starts and unlocks the broker if a vector left it otherwise.
func (p *person) restore(t testing.TB) {
	p.t = t
	if p.down {
		p.b.T = p.root // what is opened now outlives the vector
		p.b.Serve()
		p.ch, p.read, p.down = p.b.Open(), false, false
		p.locked = true
		p.b.T = t
	}
	if p.locked {
		p.unlock()
	}
}

// rows returns the rows of the ledger behind from, and moves from.
func (p *person) rows(t testing.TB, from *int64) []json.RawMessage {
	p.t = t
	p.openReading()
	var all []json.RawMessage
	for n := int64(1); ; {
		var l wire.List[json.RawMessage]
		p.call(wire.MethodActivityList, wire.ActivityList{From: n, Limit: 500}, &l, nil)
		if len(l.Items) == 0 {
			return all
		}
		all = append(all, l.Items...)
		var last struct {
			N int64 `json:"n"`
		}
		json.Unmarshal(l.Items[len(l.Items)-1], &last)
		n = last.N + 1
	}
}

// relay is another process on the socket: it passes bytes on.
func relay(home string) {
	loc, err := endpoint.InHome(home)
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		var conn *endpoint.Conn
		if conn, err = endpoint.Dial(ctx, loc); err == nil {
			go func() {
				io.Copy(conn, os.Stdin)
				conn.Close()
			}()
			io.Copy(os.Stdout, conn)
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// dialElsewhere connects from a process of its own.
func dialElsewhere(t testing.TB, home string) net.Conn {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(pair[0])
	syscall.CloseOnExec(pair[1])
	mine, its := os.NewFile(uintptr(pair[0]), "relay"), os.NewFile(uintptr(pair[1]), "relay")
	defer mine.Close()
	defer its.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "YETTTEST_RELAY="+home)
	c.Stdin, c.Stdout, c.Stderr = its, its, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		c.Process.Kill()
		c.Wait()
	})
	return conn
}
