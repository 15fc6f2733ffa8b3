package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/demo"
)

// SSH beside OpenSSH's own client, against one OpenSSH server on loopback:
//
//	new       a command on a connection that has to be made
//	          limit: ssh, which starts, connects and runs it
//	reused    a command on the session's kept connection
//	          limit: ssh through a ControlMaster
//	output    10 MiB of output on the kept connection, to the result, and with
//	          reading all of it
//	          limit: ssh, through a ControlMaster and on a new connection
//
// Both sides include what an agent waits for: of ssh its start as a process, of
// Yett the socket, the decision and the durable intent.

const sshOutput = 10 << 20

// sshBench is the server, and OpenSSH's client for it.
type sshBench struct {
	*bench
	server  *demo.SSHD
	file    string   // the access file
	options []string // of ssh
	control string   // the socket of a ControlMaster
	changes int      // of the access file
}

func (b *bench) measureSSH(rounds int) error {
	s := &sshBench{bench: b}
	if err := s.prepare(); err != nil {
		return err
	}
	defer s.server.Stop()
	end, err := s.startMaster()
	if err != nil {
		return err
	}
	defer end()
	output := fmt.Sprintf("head -c %d /dev/zero", sshOutput)
	kinds := []struct {
		name string
		call func() (time.Duration, error)
		all  []time.Duration
	}{
		{name: "ssh, a new connection", call: timed(func() error { return s.ssh("", "true") })},
		{name: "brokered, a new connection", call: s.brokeredNew},
		{name: "ssh, through a ControlMaster", call: timed(func() error { return s.ssh(s.control, "true") })},
		{name: "brokered, the kept connection", call: timed(func() error { return s.brokered("true", 0) })},
		{name: "ssh, 10 MiB, a new connection", call: timed(func() error { return s.ssh("", output) })},
		{name: "ssh, 10 MiB, through a ControlMaster", call: timed(func() error { return s.ssh(s.control, output) })},
		{name: "brokered, 10 MiB, to the result", call: timed(func() error { return s.brokered(output, 0) })},
		{name: "brokered, 10 MiB, and all of it read", call: timed(func() error { return s.brokered(output, sshOutput) })},
		{name: "ssh, a new connection, curve25519 only", call: timed(func() error { return s.ssh("", "true", "-o", "KexAlgorithms=curve25519-sha256") })},
	}
	for i := range rounds + 1 { // the first round warms up
		for k := range kinds {
			took, err := kinds[k].call()
			if err != nil {
				return fmt.Errorf("%s: %w", kinds[k].name, err)
			}
			if i > 0 {
				kinds[k].all = append(kinds[k].all, took)
			}
		}
	}
	of := func(i int) time.Duration { return median(kinds[i].all) }
	fmt.Println()
	fmt.Printf("%.2f×  brokered command / ssh, a new connection        (target 0.7)\n", ratio(of(1), of(0)))
	fmt.Printf("%.2f×  the same, where ssh makes no post-quantum key exchange\n", ratio(of(1), of(8)))
	fmt.Printf("%.2f×  brokered command / ssh by ControlMaster, reused (target 0.5)\n", ratio(of(3), of(2)))
	fmt.Printf("%.2f×  10 MiB of output, brokered / ssh                (brokered on the kept connection)\n", ratio(of(6), of(4)))
	fmt.Printf("%.2f×  the same, and the agent reads all of it\n", ratio(of(7), of(4)))
	fmt.Printf("%.2f×  10 MiB of output, brokered / ssh by ControlMaster\n\n", ratio(of(6), of(5)))
	for _, k := range kinds {
		fmt.Printf("%-38s n=%-4d median %-10v p90 %v\n", k.name, len(k.all), round(median(k.all)), round(percentile(k.all, 0.9)))
	}
	return nil
}

func timed(call func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		begin := time.Now()
		err := call()
		return time.Since(begin), err
	}
}

// prepare starts the server, and lets the bench's session run commands there.
func (s *sshBench) prepare() error {
	dir := filepath.Join(s.dir, "sshd")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var err error
	// Without a home there are no start files of this account's shell to measure.
	if s.server, err = demo.StartSSHDIn(dir, "SetEnv HOME="+dir); err != nil {
		return err
	}
	host, port, _ := strings.Cut(s.server.Address, ":")
	key, known := filepath.Join(s.dir, "id"), filepath.Join(s.dir, "known_hosts")
	s.options = []string{"-F", "/dev/null", "-i", key, "-p", port, "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile=" + known, "-o", "LogLevel=ERROR", s.server.User + "@" + host}
	s.file, s.control = filepath.Join(s.dir, "access.toml"), filepath.Join(s.dir, "control")
	before, err := os.ReadFile(s.file)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		key: string(s.server.ClientKey), known: fmt.Sprintf("[%s]:%s %s\n", host, port, s.server.HostKey),
		s.file: fmt.Sprintf("%s\n[credential.key]\nkind = \"ssh-key\"\n\n[host.box]\naddress = %q\nuser = %q\nkey = \"key\"\nkeepalive = \"30s\"\nhost_keys = [%q]\n\n"+
			"[capability.\"ssh:box.run\"]\nhost = \"box\"\ncommands = [\"true\", \"head -c %d /dev/zero\"]\n",
			before, s.server.Address, s.server.User, s.server.HostKey, sshOutput),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return err
		}
	}
	if _, err := s.yett("", "apply", s.file); err != nil {
		return err
	}
	if _, err := s.yett(string(s.server.ClientKey), "secret", "set", "key"); err != nil {
		return err
	}
	ctx := context.Background()
	if _, err := s.session.RequestAccess(ctx, []string{"ssh:box.run"}, "measuring", 0); err != nil {
		return err
	}
	return s.approveCard()
}

// startMaster makes the connection that ssh shares.
func (s *sshBench) startMaster() (end func(), err error) {
	master := exec.Command("ssh", append([]string{"-M", "-N", "-S", s.control}, s.options...)...)
	if err := master.Start(); err != nil {
		return nil, err
	}
	end = func() {
		master.Process.Kill()
		master.Wait()
	}
	for range 500 {
		if _, err := os.Stat(s.control); err == nil {
			return end, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
	return nil, fmt.Errorf("ssh made no master connection")
}

// ssh runs a command by OpenSSH's client, through a master or for itself.
func (s *sshBench) ssh(control, command string, more ...string) error {
	if control == "" {
		control = "none"
	}
	c := exec.Command("ssh", append(append(append([]string{"-S", control}, more...), s.options...), command)...)
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	io.Copy(io.Discard, out)
	return c.Wait()
}

// brokeredNew runs a command after the broker has closed what it kept: any change
// of the access file does that.
func (s *sshBench) brokeredNew() (time.Duration, error) {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return 0, err
	}
	s.changes++
	text = keepaliveLine.ReplaceAll(text, fmt.Appendf(nil, "keepalive = \"%ds\"", 30+s.changes%2))
	if err := os.WriteFile(s.file, text, 0o600); err != nil {
		return 0, err
	}
	if _, err := s.yett("", "apply", s.file); err != nil {
		return 0, err
	}
	return timed(func() error { return s.brokered("true", 0) })()
}

var keepaliveLine = regexp.MustCompile(`keepalive = "\d+s"`)

// brokered runs a command, and reads so much of its output.
func (s *sshBench) brokered(command string, read int64) error {
	ctx := context.Background()
	op, err := s.session.Do(ctx, "ssh:box.run", client.Action{Command: &command}, "", 30_000)
	if err != nil {
		return err
	}
	var r client.SSHResult
	if err := json.Unmarshal(op.Result, &r); err != nil || r.Exit.Status == nil || *r.Exit.Status != 0 {
		return fmt.Errorf("state %s, result %s: %v", op.State, op.Result, err)
	}
	for at := int64(0); at < read; {
		b, err := s.session.Body(ctx, r.StdoutRef, at, 512<<10)
		if err != nil || len(b.BytesBase64) == 0 {
			return fmt.Errorf("reading at %d: %v", at, err)
		}
		at += int64(len(b.BytesBase64))
	}
	return nil
}
