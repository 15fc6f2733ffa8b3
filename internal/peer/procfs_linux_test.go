package peer

import (
	"os"
	"testing"
)

var statSeeds = []string{
	"1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 42 1 2",
	"7 (a) b) (c) S 1 7 7 34816 7 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 1 2",
	"7 (x\n) S 1 7 7 34816 7 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 1 2",
	"7 ) S (", "", "7 (x) S 1", "()",
}

var statusSeeds = []string{
	"Name:\tx\nPPid:\t1\nTracerPid:\t0\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nNSpid:\t9\t1\n",
	"PPid:\t1\nPPid:\t1\nPPid:\t1\nPPid:\t1\nPPid:\t1\n",
	"PPid:\t1\nTracerPid:\t0\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nNSpid:\t9\t1\nUid:\t0\t0\t0\t0\n",
	"Uid:\t1\n", "NSpid:\t\n", "", "PPid", "Name:\tx\\nUid:\t0\n",
}

func TestSeeds(t *testing.T) {
	if len(statSeeds) == 0 || len(statusSeeds) == 0 {
		t.Fatal("no seeds")
	}
	st, err := parseStat(statSeeds[1])
	if err != nil || st != (statFacts{comm: "a) b) (c", session: 7, tty: 34816, startTicks: 99}) {
		t.Errorf("parseStat = %+v, %v", st, err)
	}
	status, err := parseStatus(statusSeeds[0])
	if err != nil || status.ppid != 1 || status.euid != 2 || status.egid != 6 || len(status.nspid) != 2 {
		t.Errorf("parseStatus = %+v, %v", status, err)
	}
	for _, text := range statusSeeds[1:] {
		if st, err := parseStatus(text); err == nil {
			t.Errorf("parseStatus(%q) = %+v", text, st)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	for _, seed := range statSeeds {
		f.Add(seed)
	}
	if text, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		st, err := parseStat(text)
		if err != nil && st != (statFacts{}) {
			t.Errorf("facts beside an error: %+v, %v", st, err)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	for _, seed := range statusSeeds {
		f.Add(seed)
	}
	if text, err := os.ReadFile("/proc/self/status"); err == nil {
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		st, err := parseStatus(text)
		if err == nil && len(st.nspid) == 0 {
			t.Errorf("no namespace ids: %+v", st)
		}
	})
}

func TestTTYName(t *testing.T) {
	for nr, want := range map[int]string{0: "", 34816: "/dev/pts/0", 34816 + 17: "/dev/pts/17", 1024 + 1: "/dev/tty1", 1024 + 64: "/dev/ttyS0", 5 << 8: "5:0"} {
		if got := ttyName(nr); got != want {
			t.Errorf("ttyName(%d) = %q, want %q", nr, got, want)
		}
	}
}

func TestParseMountinfo(t *testing.T) {
	const text = "21 1 0:20 / / rw,relatime shared:1 - ext4 /dev/root rw\n" +
		"36 21 0:31 / /mnt/a\\040-\\040nfs rw master:1 - fuse.sshfs host: rw\n" +
		"360 21 0:32 / /x rw - tmpfs tmpfs rw\n37 1 broken\n"
	for id, want := range map[uint64]string{21: "ext4", 36: "fuse.sshfs", 360: "tmpfs", 37: "", 3: ""} {
		if got, err := parseMountinfo(text, id); got != want || (err == nil) != (want != "") {
			t.Errorf("mount %d: %q, %v, want %q", id, got, err, want)
		}
	}
	if !othersDecide("fuse.sshfs") || !othersDecide("nfs4") || othersDecide("ext4") || othersDecide("") {
		t.Error("who decides is judged wrongly")
	}
}
