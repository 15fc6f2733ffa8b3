package vault

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// memoryDir makes the test binary a process that opens, uses and locks the
// vault in this directory, step by step, while the test looks at its memory.
const memoryDir = "YETT_TEST_VAULT_MEMORY"

func init() {
	if dir := os.Getenv(memoryDir); dir != "" {
		os.Exit(showMemory(dir))
	}
}

// showMemory reads the unlock key, in hexadecimal, from standard input.
func showMemory(dir string) int {
	in := bufio.NewReader(os.Stdin)
	step := func(name string) {
		debug.FreeOSMemory()
		fmt.Println(name)
		in.ReadByte()
	}
	v, err := Load(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var key [keySize]byte
	line := make([]byte, 2*keySize)
	_, err = io.ReadFull(in, line)
	if err == nil {
		_, err = hex.Decode(key[:], line)
	}
	if err == nil {
		err = v.Unlock(SlotPassphrase, key[:])
	}
	clear(key[:])
	clear(line)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	step("unlocked")
	err = v.Use(api.Name, api, func(s []byte) error { step("lent"); return nil })
	if err == nil {
		step("returned")
		v.Lock()
		step("locked")
	}
	fmt.Println(err)
	return 0
}

// TestMemory looks for keys and values in all memory of a process that has used
// a vault. Without GOEXPERIMENT=runtimesecret it can only ask for what the vault
// itself wipes. What a copy leaves in registers lands on a stack where the
// runtime interrupts it: that is chance, so a finding counts if three processes
// in a row have it.
func TestMemory(t *testing.T) {
	v, m := withSecrets(t)
	value := []byte("token-" + hex.EncodeToString(randomBytes(16)))
	must(t, v.SetSecret(api.Name, value, true))
	valueKey, err := expand(v.open.keys.root(), "yett-vault/1 values")
	must(t, err)
	keys := map[string][]byte{"the data key": v.open.keys.data(), "the root key": v.open.keys.root(), "the audit key": v.open.keys.auditPrivate(),
		"an approval key": v.open.keys.approval(0), "the value key": valueKey}
	all := map[string][]byte{"the unlock key": m.pass.Unlock, "the value": value}
	for name, key := range keys {
		all[name] = key
	}
	var left []string
	for range 3 {
		at := lookThrough(t, v.dir, m.pass.Unlock, all)
		if mayLockMemory() {
			for name := range keys {
				if at["unlocked"].locked[name] != 1 {
					t.Errorf("%s lies %d times in locked memory", name, at["unlocked"].locked[name])
				}
			}
		}
		if at["lent"].ordinary["the value"] == 0 {
			t.Error("a value that is lent was not found: the search finds nothing")
		}
		if left := at["locked"].locked; len(left) > 0 {
			t.Errorf("locked memory of a locked vault has %v", left)
		}
		if left = ordinary(at); len(left) == 0 {
			return
		}
	}
	t.Errorf("in ordinary memory: %s", left)
}

// lookThrough searches a process at each step of its use of a vault.
func lookThrough(t *testing.T, dir string, unlockKey []byte, all map[string][]byte) map[string]copies {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), memoryDir+"="+dir)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(stdout)
	fmt.Fprintf(stdin, "%x", unlockKey)
	at := map[string]copies{}
	for _, step := range []string{"unlocked", "lent", "returned", "locked"} {
		if !lines.Scan() || lines.Text() != step {
			t.Fatalf("the process says %q instead of %s", lines.Text(), step)
		}
		at[step] = found(t, cmd.Process.Pid, all)
		fmt.Fprint(stdin, "\n")
	}
	return at
}

// ordinary tells what lies in ordinary memory and must not.
func ordinary(at map[string]copies) (left []string) {
	for step, c := range at {
		for name, n := range c.ordinary {
			if name == "the value" && step == "lent" || !erases && leftByCiphers[name] {
				continue
			}
			left = append(left, fmt.Sprintf("%s: %s %d times", step, name, n))
		}
	}
	return left
}

// erases: the runtime was built to erase what ciphers and key pairs held.
// Without that, leftByCiphers names the keys that they keep copies of.
var erases = strings.Contains(runtime.Version(), "runtimesecret")

var leftByCiphers = map[string]bool{"the data key": true, "the value key": true, "the unlock key": true, "the audit key": true}

func mayLockMemory() bool {
	m := newLockedMemory(1)
	defer m.free()
	return m.mapped != nil && unix.Mlock(m.mapped) == nil
}

// copies counts, by name, in memory that is locked and in memory that is not.
type copies struct{ locked, ordinary map[string]int }

func found(t *testing.T, pid int, what map[string][]byte) copies {
	t.Helper()
	c := copies{map[string]int{}, map[string]int{}}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	must(t, err)
	defer mem.Close()
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	must(t, err)
	var from, to uint64
	bytesRead := 0
	for line := range strings.Lines(string(smaps)) {
		var a, b uint64
		if n, _ := fmt.Sscanf(line, "%x-%x ", &a, &b); n == 2 {
			from, to = a, b
			continue
		}
		if !strings.HasPrefix(line, "VmFlags:") || !strings.Contains(line, " rd ") {
			continue
		}
		in := c.ordinary
		if strings.Contains(line, " lo ") {
			in = c.locked
		}
		if to-from > 1<<30 {
			continue // reserved, not used
		}
		region := make([]byte, to-from)
		n, _ := mem.ReadAt(region, int64(from)) // none of what the kernel keeps to itself
		bytesRead += n
		for name, w := range what {
			if n := bytes.Count(region[:n], w); n > 0 {
				in[name] += n
			}
		}
	}
	if bytesRead < 1<<20 {
		t.Fatalf("only %d bytes of memory were read", bytesRead)
	}
	return c
}
