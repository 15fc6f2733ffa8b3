package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/client"
)

// What hostile servers cost the other sessions. Brokered GETs of one session are
// timed
//
//	alone     nothing else is done: half of them before, half of them after
//	beside    other sessions, one for each kind, call a hostile server again and
//	          again: a gzip of 1 GiB, a body of 1 GiB, one without end, headers
//	          without end, one byte at a time, an SSH host that floods both streams
//
// They begin a second before, so that the burst is over that large streams have.
// The hostile servers run on this machine too, in one process at the lowest
// priority, since in life they have a machine of their own.

// hostilePaths are the documents that the hostile upstream has.
var hostilePaths = []string{"/v1/bomb", "/v1/gigabyte", "/v1/endless", "/v1/headers", "/v1/trickle"}

// hostile is the process of the servers, and what it printed of itself.
type hostile struct {
	cmd           *exec.Cmd
	URL, SSH, Key string
	Client        string // the private key that the SSH server takes
}

// measureHostile prints the ratio first.
func (b *bench) measureHostile(calls int) error {
	h, err := b.startHostile()
	if err != nil {
		return err
	}
	end := sync.OnceFunc(func() { h.cmd.Process.Kill(); h.cmd.Wait() })
	defer end()
	sessions, err := b.openHostileSessions(h)
	if err != nil {
		return err
	}
	alone, err := b.timed(nil, calls/2)
	if err != nil {
		return err
	}
	attack := startAttack(sessions)
	time.Sleep(time.Second)
	beside, err := b.timed(nil, calls)
	done, failed := attack.stop(end)
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if alone, err = b.timed(alone, calls-calls/2); err != nil {
		return err
	}
	fmt.Printf("\n%.2f×  p99 of a brokered GET beside hostile servers / alone  (target 2)\n", ratio(percentile(beside, 0.99), percentile(alone, 0.99)))
	fmt.Printf("%.2f×  the same, median\n\n", ratio(median(beside), median(alone)))
	for name, all := range map[string][]time.Duration{"alone": alone, "beside hostile servers": beside} {
		fmt.Printf("brokered GET, %-24s n=%-5d median %-10v p99 %-10v slowest %v\n", name, len(all), round(median(all)), round(percentile(all, 0.99)), round(slices.Max(all)))
	}
	peak, err := peakResident(b.serve.Process.Pid)
	fmt.Printf("%d calls of hostile servers meanwhile; the broker's peak is %d MiB\n", done, peak>>10)
	return err
}

// attack is the calls of hostile servers.
type attack struct {
	ending  atomic.Bool
	done    atomic.Int64
	running sync.WaitGroup
	failed  chan error
}

func startAttack(sessions map[string]*client.Session) *attack {
	a := &attack{failed: make(chan error, len(sessions))}
	for name, s := range sessions {
		a.running.Go(func() {
			for !a.ending.Load() {
				if err := callHostile(s, name); err != nil && !a.ending.Load() {
					a.failed <- fmt.Errorf("%s: %w", name, err)
					return
				}
				a.done.Add(1)
			}
		})
	}
	return a
}

// stop ends the servers, with which the calls end that are under way.
func (a *attack) stop(end func()) (done int64, failed error) {
	a.ending.Store(true)
	done = a.done.Load()
	end()
	a.running.Wait()
	close(a.failed)
	return done, <-a.failed
}

// callHostile makes one call, whatever comes of it.
func callHostile(s *client.Session, name string) error {
	a := client.Action{}
	capability := "http:hostile.read"
	if name == "ssh" {
		command := "flood"
		capability, a.Command = "ssh:hostile.run", &command
		timeout := int64(2000)
		a.TimeoutMS = &timeout
	} else {
		method := "GET"
		a.Method, a.Path = &method, &name
	}
	op, err := s.Do(context.Background(), capability, a, "", 50_000)
	if err != nil {
		return err
	}
	if op.State != "completed" && op.State != "indeterminate" {
		return fmt.Errorf("state %s, reason %v", op.State, op.Reason)
	}
	return nil
}

// openHostileSessions applies capabilities for the hostile servers, and opens a
// session for each kind of call.
func (b *bench) openHostileSessions(h *hostile) (map[string]*client.Session, error) {
	file := filepath.Join(b.dir, "hostile.toml")
	text := fmt.Sprintf("[credential.up]\nkind = \"bearer\"\norigin = %q\n\n[credential.hostile]\nkind = \"bearer\"\norigin = %q\n\n[credential.flooder]\nkind = \"ssh-key\"\n\n"+
		"[host.hostile]\naddress = %q\nuser = \"bench\"\nkey = \"flooder\"\nhost_keys = [%q]\n\n"+
		"[capability.\"http:up.read\"]\ncredential = \"up\"\nmethods = [\"GET\"]\npaths = [\"/v1/**\"]\n\n"+
		"[capability.\"http:hostile.read\"]\ncredential = \"hostile\"\nmethods = [\"GET\"]\npaths = [\"/v1/**\"]\n\n"+
		"[capability.\"ssh:hostile.run\"]\nhost = \"hostile\"\ncommands = [\"flood\"]\nrepeat = true\n", b.url, h.URL, h.SSH, h.Key)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, c := range [][]string{{"", "apply", file}, {"a-token-for-measuring", "secret", "set", "hostile"}, {h.Client, "secret", "set", "flooder"}} {
		if _, err := b.yett(c[0], c[1:]...); err != nil {
			return nil, err
		}
	}
	sessions := map[string]*client.Session{}
	for _, name := range append(slices.Clone(hostilePaths), "ssh") {
		capability := "http:hostile.read"
		if name == "ssh" {
			capability = "ssh:hostile.run"
		}
		conn, err := client.DialHome(context.Background(), b.home, client.Options{Program: "bench"})
		if err != nil {
			return nil, err
		}
		if sessions[name], err = conn.OpenSession(context.Background(), []string{capability}, "measuring"); err != nil {
			return nil, err
		}
		if err := b.approveCard(); err != nil {
			return nil, err
		}
	}
	return sessions, nil
}

func (b *bench) startHostile() (*hostile, error) {
	h := &hostile{cmd: exec.Command("nice", "-n", "19", filepath.Join(b.bin, "bench"), "-part", "hostile")}
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	return h, json.NewDecoder(out).Decode(h)
}

// playHostile serves until it is killed.
func playHostile() error {
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	shell, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	_, clientKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromKey(hostKey)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(clientKey, "")
	if err != nil {
		return err
	}
	h := hostile{URL: "http://" + web.Addr().String(), SSH: shell.Addr().String(),
		Key: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), Client: string(pem.EncodeToMemory(block))}
	if err := json.NewEncoder(os.Stdout).Encode(h); err != nil {
		return err
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(signer)
	go flood(shell, config)
	return http.Serve(web, hostileHandler())
}

// hostileHandler answers as no upstream should, by path.
func hostileHandler() http.Handler {
	var member bytes.Buffer // 64 MiB of zeros; sixteen of them are a gzip of 1 GiB
	z := gzip.NewWriter(&member)
	piece := make([]byte, 64<<10)
	for range 1024 {
		z.Write(piece)
	}
	z.Close()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bytes.Repeat(member.Bytes(), 16))
			return
		case "/v1/gigabyte":
			w.Header().Set("Content-Length", strconv.Itoa(1<<30))
			fallthrough
		case "/v1/endless":
			for {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err != nil {
			return
		}
		for i := range 1 << 20 {
			if r.URL.Path == "/v1/trickle" {
				if _, err := io.WriteString(c, "X"); err != nil || i == 40 {
					return
				}
				time.Sleep(50 * time.Millisecond)
			} else if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("x", 1000)); err != nil {
				return
			}
		}
	})
}

// flood lets everybody in, and answers a command with both streams without end.
func flood(l net.Listener, config *ssh.ServerConfig) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for c := range channels {
				ch, requests, err := c.Accept()
				if err != nil {
					return
				}
				go func() {
					for r := range requests {
						r.Reply(true, nil)
						if r.Type == "exec" {
							go io.Copy(ch, endless{})
							go io.Copy(ch.Stderr(), endless{})
						}
					}
				}()
			}
		}()
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }
