package yetttest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestC14_AFlooderKeepsNobodyOut: one process gets its share of channels and no
// more, and the others get theirs.
func TestC14_AFlooderKeepsNobodyOut(t *testing.T) {
	b, _ := demoBroker(t)
	c := b.Granted("http:demo.read")
	flooder := b.live("crowd", "100")
	if given := flooder.word("given"); given != "64" {
		t.Errorf("one process was given %s channels", given)
	}
	if other := b.live("crowd", "10"); other.word("given") != "10" {
		t.Error("another process was not given its own")
	}
	if op := c.MustAct("http:demo.read", readX); op.State != "completed" {
		t.Errorf("%+v", op)
	}
	if r := b.RunPlain("status"); r.Code != 0 {
		t.Errorf("yett status: exit %d %s", r.Code, r.Stderr)
	}
	flooder.kill()
	for b.status().Sessions > 11 {
		time.Sleep(5 * time.Millisecond)
	}
	if again := b.live("crowd", "64"); again.word("given") != "64" {
		t.Error("what a process held is not given back")
	}
}

// TestC14_ACrowdKeepsNobodyOut: processes that together take every place that
// the broker's descriptors allow push out neither what a person approved nor
// the person, and a newcomer still gets in.
func TestC14_ACrowdKeepsNobodyOut(t *testing.T) {
	up := StartUpstream(t, canary)
	b := New(t)
	b.Under = []string{"prlimit", "--nofile=900:900"} // room for 65 channels beside those of yett
	b.Serve()
	b.Unlock()
	b.Apply(up.Access())
	b.SetSecret("demo", canary)
	c := b.Granted("http:demo.read")
	for range 4 {
		if p := b.live("crowd", "64"); p.word("given") != "64" {
			t.Error("a newcomer was kept out")
		}
	}
	if op := c.MustAct("http:demo.read", readX); op.State != "completed" {
		t.Errorf("%+v", op)
	}
	for range 5 {
		if r := b.RunPlain("status"); r.Code != 0 {
			t.Errorf("yett status: exit %d %s", r.Code, r.Stderr)
		}
	}
	if st := b.status(); st.Sessions > 65 {
		t.Errorf("%d sessions", st.Sessions)
	}
	if n := descriptors(t, b.PID()); n > 900 {
		t.Errorf("%d descriptors", n)
	}
}

// TestC14_RequestsAreBoundedInBytes: what a process has under way beyond its
// share stays in its own socket, and is answered when there is room.
func TestC14_RequestsAreBoundedInBytes(t *testing.T) {
	b, _ := demoBroker(t)
	before := resident(t, b.PID())
	c := b.Open()
	c.OpenSession("http:demo.read") // its card waits, and so does who asks
	body := strings.Repeat("x", 900_000)
	const asked = 60
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for n := range asked {
			fmt.Fprintf(c.Conn(), `{"jsonrpc":"2.0","id":%d,"method":"session.wait","params":{"session_id":%q,"sequence":%d,"wait_ms":3000}%s}`+"\n",
				1000+n, c.Session.SessionID, n+1, strings.Repeat(" ", len(body)))
		}
	}()
	if other := b.live("crowd", "3"); other.word("given") != "3" {
		t.Error("another process waits for this one")
	}
	if grown := resident(t, b.PID()) - before; grown > 200<<10 {
		t.Errorf("the broker grew by %d KiB", grown)
	}
	for range asked {
		if r, ok := c.Read(); !ok || r.Error != nil {
			t.Fatalf("%v %s", ok, r.Code())
		}
	}
	<-sent
}

// roundsOfAgents is less where the race detector makes each of them slow.
func roundsOfAgents() int {
	if raceEnabled {
		return 100
	}
	return 1000
}

// TestThousandAgentsLeaveNothing: agents that begin a session and are killed
// leave no session, no descriptor, no thread, no process and no memory.
func TestThousandAgentsLeaveNothing(t *testing.T) {
	b, _ := demoBroker(t)
	round := func() {
		p := b.live("agent")
		p.word("session")
		p.kill()
	}
	settled := func() {
		for b.status().Sessions > 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	rounds := roundsOfAgents()
	for range rounds / 5 { // what is remembered and pooled comes once
		round()
	}
	settled()
	fds, threads, memory := descriptors(t, b.PID()), threads(t, b.PID()), resident(t, b.PID())
	for range rounds - rounds/5 {
		round()
	}
	settled()
	for deadline := time.Now().Add(Patience); descriptors(t, b.PID()) > fds && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if n := descriptors(t, b.PID()); n > fds {
		t.Errorf("%d descriptors, were %d", n, fds)
	}
	if n := numberIn(t, b.PID(), "Threads:"); n > threads+8 {
		t.Errorf("%d threads, were %d", n, threads)
	}
	// A channel that stayed would be some 33 KiB; a remembered session is 5.
	if grown := resident(t, b.PID()) - memory; !raceEnabled && grown > 12*rounds {
		t.Errorf("%d rounds cost %d KiB", rounds, grown)
	}
	if kids := children(t, b.PID()); len(kids) > 0 {
		t.Errorf("the broker has children: %v", kids)
	}
}

func descriptors(t testing.TB, pid int) int {
	t.Helper()
	// A broker that hides its descriptors says how many it has in its status.
	if list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		return len(list)
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return int(info.Size())
}

func threads(t testing.TB, pid int) int { return numberIn(t, pid, "Threads:") }

// resident is the memory of a process in KiB.
func resident(t testing.TB, pid int) int { return numberIn(t, pid, "VmRSS:") }

func numberIn(t testing.TB, pid int, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			must(t, err)
			return n
		}
	}
	t.Fatalf("no %s in the status of %d", name, pid)
	return 0
}

func children(t testing.TB, pid int) (kids []string) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	must(t, err)
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		kids = append(kids, strings.Fields(string(text))...)
	}
	return kids
}
