package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bootTime bounds one machine, from power on to power off. Without hardware
// help a machine is some ten times slower.
const bootTime = 30 * time.Minute

// probeTime bounds the look whether the hardware helps.
const probeTime = 15 * time.Second

// options of every kernel. A busy host delays the timer that a kernel would test.
const options = "console=ttyS0 panic=-1 loglevel=4 no_timer_check"

// output is what a machine said, by job.
type output struct {
	jobs []string // in the order of their first word
	of   map[string]*jobOutput
}

type jobOutput struct {
	text    strings.Builder
	again   *strings.Builder // of the tests that failed, run once more; else nil
	ended   bool
	exit    int
	seconds float64
}

// accelerator returns what runs machines here: the hardware if it really does,
// since some hosts offer a /dev/kvm on which no machine moves. A kernel without
// an init says much on the console and ends at once.
func accelerator(ctx context.Context, dir, image string) string {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	f.Close()
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	console := filepath.Join(dir, "probe")
	err = qemu(ctx, "kvm", image, "-append", options, "-serial", "file:"+console).Run()
	if text, _ := os.ReadFile(console); err != nil || len(text) == 0 {
		return "tcg"
	}
	return "kvm"
}

func qemu(ctx context.Context, accelerator, image string, args ...string) *exec.Cmd {
	cpu := "max"
	if accelerator == "tcg" {
		cpu = "qemu64" // programs that find vector instructions use them, which emulation makes slower than none
	}
	return exec.CommandContext(ctx, "qemu-system-x86_64", append([]string{"-accel", accelerator, "-cpu", cpu, "-m", "2048", "-smp", "2",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none", "-kernel", image}, args...)...)
}

// boot runs one machine until it turns itself off.
func boot(ctx context.Context, accelerator, dir, image, initrd string) (*output, error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	console, results := filepath.Join(dir, "console"), filepath.Join(dir, "results")
	c := qemu(ctx, accelerator, image, "-initrd", initrd, "-append", options+" rdinit=/init",
		"-serial", "file:"+console, "-serial", "file:"+results)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	err := c.Run()
	text, readErr := os.ReadFile(results)
	said, parseErr := parse(text)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the machine did not end: %w\n%s", ctx.Err(), tail(console))
	case err != nil:
		return nil, fmt.Errorf("qemu: %w\n%s", err, complaint.Bytes())
	case readErr != nil:
		return nil, readErr
	case parseErr != nil:
		return nil, fmt.Errorf("%w\n%s", parseErr, tail(console))
	}
	return said, nil
}

// parse reads the lines of the second serial port.
func parse(text []byte) (*output, error) {
	o := &output{of: map[string]*jobOutput{}}
	done := false
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("the machine said %q: %w", lines.Bytes(), err)
		}
		if m.Done {
			done = true
			continue
		}
		j := o.of[m.Job]
		if j == nil {
			j = &jobOutput{}
			o.of[m.Job] = j
			o.jobs = append(o.jobs, m.Job)
		}
		switch {
		case m.Again != "":
			j.again = &strings.Builder{}
			continue
		case m.Exit != nil:
			j.ended, j.exit = true, *m.Exit
			j.seconds += m.Seconds
			continue
		case j.again != nil:
			j.again.WriteString(m.Line + "\n")
			continue
		}
		j.text.WriteString(m.Line + "\n")
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if !done {
		return nil, errors.New("the machine ended before its work was done")
	}
	return o, nil
}

func (o *output) print(w io.Writer) {
	for _, name := range o.jobs {
		j := o.of[name]
		fmt.Fprintf(w, "--- %s, %.0f s\n%s", name, j.seconds, j.text.String())
		if j.again != nil {
			fmt.Fprintf(w, "--- %s, once more\n%s", name, j.again.String())
		}
	}
}

// tail returns the last lines of the console, where the kernel complains.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
