package yetttest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/wire"
)

// The test binary plays one of many agents when this is set.
const busyVariable = "YETTTEST_BUSY"

func init() {
	if os.Getenv(busyVariable) == "" {
		return
	}
	safe, _ := strconv.Atoi(os.Args[2])
	unsafe, _ := strconv.Atoi(os.Args[3])
	if err := playBusy(os.Args[1], safe, unsafe); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// playBusy waits for its grant and then acts, one action after the other.
func playBusy(home string, safe, unsafe int) error {
	n, err := dialNative(home, "http:demo.read", "http:demo.write")
	if err != nil {
		return err
	}
	var s wire.SessionResult
	if err := n.ask(wire.MethodSessionWait, map[string]any{"session_id": n.id, "sequence": 1, "wait_ms": 50_000}, &s); err != nil {
		return err
	}
	for i := range safe + unsafe {
		what := map[string]any{"method": "GET", "path": "/v1/document"}
		capability := "http:demo.read"
		if i%(safe/max(unsafe, 1)+1) == 0 && i/(safe/max(unsafe, 1)+1) < unsafe {
			what, capability = map[string]any{"method": "POST", "path": fmt.Sprintf("/v1/p%d-%d", os.Getpid(), i)}, "http:demo.write"
		}
		var op Operation
		err := n.ask(wire.MethodActionRequest, map[string]any{"session_id": n.id, "sequence": i + 2, "capability": capability,
			"action": what, "wait_ms": 50_000}, &op)
		if err != nil || op.State != "completed" {
			return fmt.Errorf("action %d: %+v %v", i, op, err)
		}
	}
	fmt.Println("done", safe+unsafe)
	return nil
}

// begin starts the process.
func (p *living) begin() {
	p.t.Helper()
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	must(p.t, err)
	p.out = bufio.NewReader(out)
	must(p.t, p.cmd.Start())
	p.t.Cleanup(p.kill)
}

// TestA05_ManyProcessesOneLedger: agents that act at the same moment get one
// row each for intent and outcome, in one tree, and hear of no lock. With
// YETT_STRESS=1 they are 25, with 200 safe and 20 unsafe actions each.
func TestA05_ManyProcessesOneLedger(t *testing.T) {
	processes, safe, unsafe := 4, 20, 5
	if os.Getenv("YETT_STRESS") != "" {
		processes, safe, unsafe = 25, 200, 20
	}
	b, up := demoBroker(t)
	before := len(up.Seen())
	var all []*living
	for range processes {
		p := &living{t: t, cmd: exec.Command("/proc/self/exe", b.Home, strconv.Itoa(safe), strconv.Itoa(unsafe))}
		p.cmd.Env = []string{busyVariable + "=1", "GORACE=" + os.Getenv("GORACE")}
		p.begin()
		all = append(all, p)
		p.word("session")
	}
	for range processes {
		b.Approve(b.WaitCard(), "--for", "1h")
	}
	for _, p := range all {
		if n := p.word("done"); n != strconv.Itoa(safe+unsafe) {
			t.Errorf("%s actions", n)
		}
	}
	actions := processes * (safe + unsafe)
	if seen := len(up.Seen()) - before; seen != actions {
		t.Errorf("upstream saw %d actions of %d", seen, actions)
	}
	b.Must("lock")
	b.Must("unlock")
	kinds := map[string]int{}
	for _, r := range b.Activity() {
		kinds[r.Kind]++
	}
	if kinds["intent"] != actions || kinds["outcome"] != actions {
		t.Errorf("rows %v, of %d actions", kinds, actions)
	}
	b.Stop()
	if r := b.Run("audit", "verify", "--rows"); r.Code != 0 {
		t.Errorf("verify: %s", r.Stdout)
	}
	if printed := b.Printed(); bytes.Contains(printed, []byte("SQLITE_BUSY")) || bytes.Contains(printed, []byte("holds a lock")) {
		t.Error("somebody heard of a lock")
	}
}

// TestA01_ForeignLock: another program that holds SQLite's write lock makes
// nothing get lost: what happens meanwhile is in the journal, or is refused in
// plain words, and afterwards everything is there. With YETT_STRESS=1 it holds
// the lock for ten seconds.
func TestA01_ForeignLock(t *testing.T) {
	hold := 2 * time.Second
	if os.Getenv("YETT_STRESS") != "" {
		hold = 10 * time.Second
	}
	b, up := demoBroker(t)
	c := b.Granted("http:demo.read")
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.Home, "ledger.db")+"?mode=rw&_pragma=busy_timeout(10000)")
	must(t, err)
	defer db.Close()
	conn, err := db.Conn(context.Background())
	must(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(context.Background(), "BEGIN IMMEDIATE")
	must(t, err)
	var release sync.WaitGroup
	release.Go(func() {
		time.Sleep(hold) // the lock is held for a time; nothing waits for this
		conn.ExecContext(context.Background(), "ROLLBACK")
	})
	before, done, refused := len(up.Seen()), 0, 0
	for begun := time.Now(); time.Since(begun) < hold; time.Sleep(20 * time.Millisecond) {
		switch r := c.Act("http:demo.read", readX); r.Code() {
		case "":
			done++
		case wire.CodeLedgerUnavailable:
			refused++
		default:
			t.Fatalf("an action beside a lock: %q", r.Code())
		}
	}
	release.Wait()
	for deadline := time.Now().Add(Patience); ; time.Sleep(50 * time.Millisecond) {
		if c.Act("http:demo.read", readX).Code() == "" {
			done++
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no action after the lock was gone")
		}
	}
	if seen := len(up.Seen()) - before; seen != done {
		t.Errorf("upstream saw %d, %d were answered", seen, done)
	}
	intents := 0
	for _, r := range b.Activity() {
		if r.Kind == "intent" {
			intents++
		}
	}
	if intents != done {
		t.Errorf("%d intents of %d, %d refused", intents, done, refused)
	}
	b.Stop()
	report, err := ledger.Verify(t.Context(), b.Home, nil, nil)
	if err != nil || !report.OK {
		t.Errorf("%+v %v", report, err)
	}
}
