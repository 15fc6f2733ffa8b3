// Command bench measures Yett beside its limits, in one run, so that the
// machine's mood is in both sides of each ratio. It runs the real programs that
// lie beside it, on loopback and in a scratch home, and prints ratios first.
//
//	brokered GET   agent's request → intent on disk → GET with credential → answer
//	limit          a direct GET of the same document, and one fdatasync
//	first answer   spawn of yett-mcp → answer to initialize
//	limit          the same of a bare go-sdk server
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/yett-broker/yett/client"
)

const passphrase = "a passphrase for measuring"

func main() { os.Exit(run()) }

func run() int {
	rounds := flag.Int("rounds", 7, "interleaved rounds")
	calls := flag.Int("calls", 300, "calls of each kind in a round")
	spawns := flag.Int("spawns", 15, "starts of each server")
	kills := flag.Int("kills", 1000, "agents that are killed")
	held := flag.Int("held", 5000, "idle sessions that are held")
	hostileOnly := flag.Bool("hostile", false, "measure what hostile servers cost other sessions only")
	lifeOnly := flag.Bool("life", false, "measure the life of sessions only")
	getOnly := flag.Bool("get", false, "measure brokered GETs, one by one and at once, only")
	costOnly := flag.Bool("cost", false, "measure the processor time of brokered GETs only")
	ledgerOnly := flag.Bool("ledger", false, "measure the ledger, and brokered GETs at once, only")
	httpOnly := flag.Bool("http", false, "measure kinds of HTTP requests only")
	resultsOnly := flag.Bool("results", false, "measure large results only")
	sshOnly := flag.Bool("ssh", false, "measure commands over SSH only")
	rows := flag.Int("rows", 20_000, "rows of the ledger that is started and verified")
	part := flag.String("part", "", "play a part of a measurement")
	serve := flag.Bool("upstream", false, "be the upstream")
	flag.Parse()
	if *part != "" {
		if err := playPart(*part, flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, *part, "of bench:", err)
			return 1
		}
		return 0
	}
	if *serve {
		fmt.Fprintln(os.Stderr, upstream())
		return 1
	}
	b, err := newBench()
	if err == nil {
		defer b.close()
		all := !*hostileOnly && !*lifeOnly && !*ledgerOnly && !*resultsOnly && !*httpOnly && !*sshOnly && !*getOnly && !*costOnly
		if all || *getOnly {
			err = b.measure(*rounds, *calls, *spawns)
		}
		if *ledgerOnly {
			err = b.measureIdle()
		}
		if err == nil && (all || *ledgerOnly) {
			err = measureLedger(*rounds, *rows)
		}
		if err == nil && (all || *ledgerOnly || *getOnly) {
			err = b.measureConcurrent(*calls)
		}
		if err == nil && (all || *getOnly || *costOnly) {
			err = b.measureCost(10 * *calls)
		}
		if err == nil && (all || *httpOnly) {
			err = b.measureHTTP(*rounds, *calls/3)
		}
		if err == nil && (all || *resultsOnly) {
			err = b.measureResults(3 * *rounds)
		}
		if err == nil && (all || *sshOnly) {
			err = b.measureSSH(3 * *rounds)
		}
		if err == nil && (all || *hostileOnly) {
			err = b.measureHostile(7 * *calls)
		}
		if err == nil && (all || *lifeOnly) {
			err = b.measureLife(*kills, *held)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// bench is a scratch home with a running broker, an upstream, and a session
// that was granted one capability on it.
type bench struct {
	bin, dir, home, url string
	serve, up           *exec.Cmd
	conn                *client.Conn
	session             *client.Session
	direct              *http.Client
}

func newBench() (*bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bench{bin: filepath.Dir(self), direct: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	if b.dir, err = os.MkdirTemp("", "yb"); err != nil {
		return nil, err
	}
	b.home = filepath.Join(b.dir, "h")
	if err := b.prepare(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) prepare() error {
	if err := b.startUpstream(); err != nil {
		return err
	}
	if _, err := b.yett("", "init"); err != nil {
		return err
	}
	if err := b.startBroker(); err != nil {
		return err
	}
	access := fmt.Sprintf("[credential.up]\nkind = \"bearer\"\norigin = %q\n\n[capability.\"http:up.read\"]\ncredential = \"up\"\nmethods = [\"GET\"]\npaths = [\"/v1/**\"]\n", b.url)
	file := filepath.Join(b.dir, "access.toml")
	if err := os.WriteFile(file, []byte(access), 0o600); err != nil {
		return err
	}
	for _, c := range [][]string{{"", "unlock"}, {"", "apply", file}, {"a-token-for-measuring", "secret", "set", "up"}} {
		if _, err := b.yett(c[0], c[1:]...); err != nil {
			return err
		}
	}
	return b.openSession()
}

// startUpstream runs this program again as the upstream: a process of its own,
// as upstreams are.
func (b *bench) startUpstream() error {
	b.up = exec.Command("/proc/self/exe", "-upstream")
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		b.up.Path = os.Args[0]
	}
	out, err := b.up.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.up.Start(); err != nil {
		return err
	}
	_, err = fmt.Fscanln(out, &b.url)
	return err
}

// upstream serves documents until it is killed.
func upstream() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return http.Serve(l, http.HandlerFunc(answer))
}

func (b *bench) startBroker() error {
	b.serve = exec.Command(filepath.Join(b.bin, "yett"), "serve", "--home", b.home)
	logs, err := b.serve.StderrPipe()
	if err != nil {
		return err
	}
	if err := b.serve.Start(); err != nil {
		return err
	}
	ready := make(chan bool, 1)
	go func() {
		var seen bytes.Buffer
		buf := make([]byte, 4096)
		for {
			n, err := logs.Read(buf)
			seen.Write(buf[:n])
			if bytes.Contains(seen.Bytes(), []byte("serving, locked")) {
				ready <- true
				break
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, seen.String())
				ready <- false
				return
			}
		}
		io.Copy(io.Discard, logs)
	}()
	if !<-ready {
		return fmt.Errorf("the broker did not start")
	}
	return nil
}

// yett runs the command line with the passphrase on descriptor 3.
func (b *bench) yett(stdin string, args ...string) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	fmt.Fprintln(w, passphrase)
	w.Close()
	c := exec.Command(filepath.Join(b.bin, "yett"), append(args, "--home", b.home, "--passphrase-fd", "3")...)
	c.Stdin, c.ExtraFiles = bytes.NewReader([]byte(stdin)), []*os.File{r}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("yett %v: %v: %s", args, err, stderr.String())
	}
	return out, nil
}

func (b *bench) openSession() error {
	ctx := context.Background()
	var err error
	if b.conn, err = client.DialHome(ctx, b.home, client.Options{Program: "bench"}); err != nil {
		return err
	}
	if b.session, err = b.conn.OpenSession(ctx, []string{"http:up.read"}, "measuring"); err != nil {
		return err
	}
	return b.approveCard()
}

// approveCard approves the one card that waits, for an hour.
func (b *bench) approveCard() error {
	out, err := b.yett("", "pending", "--json")
	if err != nil {
		return err
	}
	var cards []struct {
		ApprovalID string `json:"approval_id"`
		CardDigest string `json:"card_digest"`
	}
	if err := json.Unmarshal(out, &cards); err != nil || len(cards) != 1 {
		return fmt.Errorf("no card: %s", out)
	}
	_, err = b.yett("", "approve", cards[0].ApprovalID, "--digest", cards[0].CardDigest, "--for", "1h")
	return err
}

func (b *bench) close() {
	if b.conn != nil {
		b.conn.Close()
	}
	for _, c := range []*exec.Cmd{b.serve, b.up} {
		if c != nil && c.Process != nil {
			c.Process.Kill()
			c.Wait()
		}
	}
	os.RemoveAll(b.dir)
}

func (b *bench) measure(rounds, calls, spawns int) error {
	sync, err := newSyncer(b.dir)
	if err != nil {
		return err
	}
	defer sync.Close()
	kinds := []struct {
		name string
		call func() error
		all  []time.Duration
	}{
		{name: "direct GET", call: b.getDirect},
		{name: "one fdatasync of 256 bytes", call: sync.once},
		{name: "brokered GET, durable intent", call: b.getBrokered},
	}
	for i := range rounds + 1 { // the first round warms up
		for k := range kinds {
			for range calls {
				begin := time.Now()
				if err := kinds[k].call(); err != nil {
					return fmt.Errorf("%s: %w", kinds[k].name, err)
				}
				if i > 0 {
					kinds[k].all = append(kinds[k].all, time.Since(begin))
				}
			}
		}
	}
	direct, synced, brokered := median(kinds[0].all), median(kinds[1].all), median(kinds[2].all)
	many, err := b.concurrent(16, calls)
	if err != nil {
		return err
	}
	bare, shim, err := b.firstAnswers(spawns)
	if err != nil {
		return err
	}
	fmt.Printf("%.2f×  brokered GET / direct GET, one client           (first target 4)\n", ratio(brokered, direct))
	fmt.Printf("%.2f×  brokered GET / (direct GET + one fdatasync)     (what a durable intent must cost)\n", ratio(brokered, direct+synced))
	fmt.Printf("%.2f   rate of brokered GETs / direct, 16 clients      (later target 0.5)\n", many)
	fmt.Printf("%.2f×  yett-mcp / bare go-sdk server, to first answer  (first target 1.3)\n\n", ratio(median(shim), median(bare)))
	for _, k := range kinds {
		fmt.Printf("%-32s n=%-5d median %-10v p99 %v\n", k.name, len(k.all), round(median(k.all)), round(percentile(k.all, 0.99)))
	}
	fmt.Printf("%-32s n=%-5d median %v\n", "bare go-sdk server, first answer", len(bare), round(median(bare)))
	fmt.Printf("%-32s n=%-5d median %v\n", "yett-mcp, first answer", len(shim), round(median(shim)))
	return nil
}

func (b *bench) getDirect() error {
	resp, err := b.direct.Get(b.url + "/v1/document")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func (b *bench) getBrokered() error {
	method, path := "GET", "/v1/document"
	op, err := b.session.Do(context.Background(), "http:up.read", client.Action{Method: &method, Path: &path}, "", 30_000)
	if err != nil {
		return err
	}
	if op.State != "completed" {
		return fmt.Errorf("state %s", op.State)
	}
	return nil
}

// concurrent returns the rate of brokered GETs in relation to direct ones.
func (b *bench) concurrent(clients, calls int) (float64, error) {
	rate := func(call func() error) (float64, error) {
		begin := time.Now()
		err := together(clients, calls, call)
		return float64(clients*calls) / time.Since(begin).Seconds(), err
	}
	var ratios []float64
	for range 3 {
		d, err := rate(b.getDirect)
		if err != nil {
			return 0, err
		}
		r, err := rate(b.getBrokered)
		if err != nil {
			return 0, err
		}
		ratios = append(ratios, r/d)
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2], nil
}

// together makes calls one after the other, in each of several clients at once.
func together(clients, calls int, call func() error) error {
	var wg sync.WaitGroup
	failed := make(chan error, clients)
	for range clients {
		wg.Go(func() {
			for range calls {
				if err := call(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}` + "\n"

// firstAnswers times both servers from spawn to the answer to initialize, in
// turn.
func (b *bench) firstAnswers(n int) (bare, shim []time.Duration, err error) {
	for i := range n + 1 {
		d, err := firstAnswer(filepath.Join(b.bin, "baremcp"))
		if err != nil {
			return nil, nil, err
		}
		s, err := firstAnswer(filepath.Join(b.bin, "yett-mcp"), "--home", b.home)
		if err != nil {
			return nil, nil, err
		}
		if i > 0 {
			bare, shim = append(bare, d), append(shim, s)
		}
	}
	return bare, shim, nil
}

func firstAnswer(program string, args ...string) (time.Duration, error) {
	c := exec.Command(program, args...)
	in, err := c.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := c.Start(); err != nil {
		return 0, err
	}
	defer c.Wait()
	defer in.Close()
	if _, err := io.WriteString(in, initialize); err != nil {
		return 0, err
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return 0, fmt.Errorf("%s: no answer: %w", filepath.Base(program), err)
	}
	took := time.Since(begin)
	go io.Copy(io.Discard, out)
	return took, nil
}

func median(d []time.Duration) time.Duration { return percentile(d, 0.5) }

func percentile(d []time.Duration, p float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[int(p*float64(len(s)-1))]
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func round(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
