package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/yett-broker/yett/client"
)

// The life of sessions: how soon one ends with its agent, what an idle one
// costs, and what a flooder costs the others.
//
//	end of a session   SIGKILL of the agent → the broker has ended it and closed its channel
//	limit              SIGKILL of the same program → its pidfd is readable here
//	idle session       growth of the broker's resident memory, over thousands that are held
//	flooder            p99 of a brokered GET while a process floods / without it

// holdersOf is how many channels one process holds; the broker allows no more.
const holdersOf = 64

// measureLife prints the ratios first.
func (b *bench) measureLife(kills, held int) error {
	ends, bare, err := b.killAgents(kills)
	if err != nil {
		return fmt.Errorf("killing agents: %w", err)
	}
	idle, flooded, err := b.floods(kills)
	if err != nil {
		return fmt.Errorf("flooding: %w", err)
	}
	each, err := b.holdSessions(held)
	if err != nil {
		return fmt.Errorf("holding sessions: %w", err)
	}
	fmt.Printf("\n%.2f×  end of a killed agent's session / bare pidfd, median  (target 1.5)\n", ratio(median(ends), median(bare)))
	fmt.Printf("%.2f×  the same, p99\n", ratio(percentile(ends, 0.99), percentile(bare, 0.99)))
	fmt.Printf("%.2f×  p99 of a brokered GET beside a flooder / without     (target 2)\n", ratio(percentile(flooded, 0.99), percentile(idle, 0.99)))
	fmt.Printf("%.1f KiB of memory for an idle session, %d held          (target 40)\n\n", each, held)
	for _, k := range []struct {
		name string
		all  []time.Duration
	}{{"SIGKILL → bare pidfd", bare}, {"SIGKILL → end of the session", ends}, {"brokered GET, alone", idle}, {"brokered GET, beside a flooder", flooded}} {
		fmt.Printf("%-32s n=%-5d median %-10v p99 %v\n", k.name, len(k.all), round(median(k.all)), round(percentile(k.all, 0.99)))
	}
	return nil
}

// floods times brokered GETs without and beside a process that floods, in turn.
func (b *bench) floods(n int) (idle, flooded []time.Duration, err error) {
	const blocks = 5
	for range blocks {
		if idle, err = b.timed(idle, n/blocks); err != nil {
			return nil, nil, err
		}
		f, err := b.player("flooder")
		if err != nil {
			return nil, nil, err
		}
		if flooded, err = b.timed(flooded, n/blocks); err != nil {
			return nil, nil, errors.Join(err, f.end())
		}
		if err := f.end(); err != nil {
			return nil, nil, err
		}
	}
	return idle, flooded, nil
}

func (b *bench) timed(all []time.Duration, n int) ([]time.Duration, error) {
	for range n {
		begin := time.Now()
		if err := b.getBrokered(); err != nil {
			return nil, err
		}
		all = append(all, time.Since(begin))
	}
	return all, nil
}

// holdSessions returns the KiB by which the broker grew for each held session.
func (b *bench) holdSessions(n int) (float64, error) {
	before, err := b.resident()
	if err != nil {
		return 0, err
	}
	var holders []*player
	defer func() {
		for _, p := range holders {
			p.end()
		}
	}()
	for left := n; left > 0; left -= holdersOf {
		p, err := b.player("holder", strconv.Itoa(min(left, holdersOf)))
		if err != nil {
			return 0, err
		}
		holders = append(holders, p)
	}
	out, err := b.yett("", "status", "--json")
	if err != nil {
		return 0, err
	}
	var st struct {
		Sessions int `json:"sessions"`
	}
	if err := json.Unmarshal(out, &st); err != nil || st.Sessions < n {
		return 0, fmt.Errorf("%d sessions are held: %s", n, out)
	}
	after, err := b.resident()
	return float64(after-before) / float64(n), err
}

// resident is VmRSS of the broker in KiB.
func (b *bench) resident() (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.serve.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		}
	}
	return 0, errors.New("no VmRSS")
}

// player is this program again, in another part.
type player struct {
	cmd *exec.Cmd
	in  io.Closer
}

// player starts a part and returns when it says that it is ready. It ends when
// its standard input does.
func (b *bench) player(part string, args ...string) (*player, error) {
	p := &player{cmd: exec.Command(filepath.Join(b.bin, "bench"), append([]string{"-part", part, b.home}, args...)...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("the %s says %q", part, line), err, p.end())
	}
	return p, nil
}

func (p *player) end() error {
	p.in.Close()
	return p.cmd.Wait()
}

// playPart is what a started part does.
func playPart(part string, args []string) error {
	switch part {
	case "piper":
		return playPiper()
	case "tlsupstream":
		return playTLSUpstream(args[0])
	case "hostile":
		return playHostile()
	case "agent":
		return playAgent(args[0])
	case "holder":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return playHolder(args[0], n)
	case "flooder":
		return playFlooder(args[0])
	}
	return fmt.Errorf("there is no part %q", part)
}

// playHolder holds n idle sessions.
func playHolder(home string, n int) error {
	ctx := context.Background()
	for range n {
		conn, err := client.DialHome(ctx, home, client.Options{Program: "bench"})
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.OpenSession(ctx, nil, ""); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// playFlooder takes every channel that it can get, asks on each as fast as it
// is answered, and goes on connecting.
func playFlooder(home string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var sessions []*client.Session
	for range holdersOf - 1 {
		conn, err := client.DialHome(ctx, home, client.Options{Program: "flooder"})
		if err != nil {
			return err
		}
		s, err := conn.OpenSession(ctx, nil, "")
		if err != nil {
			return err
		}
		sessions = append(sessions, s)
	}
	for _, s := range sessions {
		go func() {
			for ctx.Err() == nil {
				s.Wait(ctx, 0)
			}
		}()
	}
	go func() {
		for ctx.Err() == nil {
			if conn, err := client.DialHome(ctx, home, client.Options{Program: "flooder"}); err == nil {
				conn.Close()
			}
		}
	}()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return nil
}
