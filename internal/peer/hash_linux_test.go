package peer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func digestOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func TestU08_HashIsOfTheRunningImage(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		file := copyProgram(t, "client")
		want := digestOf(t, file)
		_, c := connect(t, file)
		p := of(t, c)
		if f := p.Evidence().Filesystem; f.SHA256 != "" || f.NotHashed != "" {
			t.Errorf("hashed too early: %+v", f)
		}
		if err := os.WriteFile(file+"2", []byte("something else"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+"2", file); err != nil {
			t.Fatal(err)
		}
		p.Hash(t.Context())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		p.Hash(ended) // once: it would find no time
		if f := p.Evidence().Filesystem; f.SHA256 != want || f.NotHashed != "" {
			t.Errorf("%+v, want the digest of the running image %s", f, want)
		}
	})
}

func TestHash_MemoryImage(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		l, path := listen(t)
		start(t, program(t), "memory", path).expect("ok")
		c := accept(t, l)
		p := of(t, c)
		p.Hash(t.Context())
		if f := p.Evidence().Filesystem; f.SHA256 != digestOf(t, program(t)) {
			t.Errorf("%+v", f)
		}

		// The same image, were its file system one that others decide.
		decidedByOthers["tmpfs"] = true
		defer delete(decidedByOthers, "tmpfs")
		p = of(t, c)
		p.Hash(t.Context())
		if f := p.Evidence().Filesystem; f.SHA256 != "" || !strings.Contains(f.NotHashed, "(tmpfs)") {
			t.Errorf("%+v, want not hashed", f)
		}
	})
}

func TestHash_OfAnotherProgramRefused(t *testing.T) {
	h, c := connect(t, program(t))
	p := of(t, c)
	h.order("exec " + copyProgram(t, "other"))
	awaitExec(t, h)
	p.Hash(t.Context())
	if f := p.Evidence().Filesystem; f.SHA256 != "" || f.NotHashed != "another program by now" {
		t.Errorf("%+v", f)
	}
}

func TestHash_Deadline(t *testing.T) {
	_, c := connect(t, copyProgram(t, "client"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := of(t, c)
	p.Hash(ctx)
	if f := p.Evidence().Filesystem; f.SHA256 != "" || f.NotHashed == "" {
		t.Errorf("%+v, want not hashed", f)
	}
}

// File systems that never answer hold all slots: the next hash gives up.
func TestHash_GivesUpWhenAllAreStuck(t *testing.T) {
	_, c := connect(t, program(t))
	p := of(t, c)
	for range cap(hashSlots) {
		hashSlots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	p.Hash(ctx)
	for range cap(hashSlots) {
		<-hashSlots
	}
	if f := p.Evidence().Filesystem; f.SHA256 != "" || f.NotHashed != "no time left to begin" {
		t.Errorf("%+v", f)
	}
}

// Only what root alone can change is taken from the cache: all of the key can
// stay equal while an owner writes to a file.
func TestHash_CacheOnlyForRootsFiles(t *testing.T) {
	everywhere(t, func(t *testing.T) {
		shell, err := os.Stat("/bin/sh")
		if err != nil || shell.Mode()&0o022 != 0 {
			t.Fatalf("/bin/sh: %v %v", shell, err)
		}
		own := copyProgram(t, "client")
		cases := []struct {
			owner, mode int
			cached      bool
		}{{0, 0o755, true}, {0, 0o775, false}, {0, 0o757, false}, {ordinary, 0o755, false}, {-1, 0o755, os.Geteuid() == 0}}
		for _, test := range cases {
			file := own
			if test.owner >= 0 {
				if os.Geteuid() != 0 {
					continue // root runs these
				}
				file = copyProgram(t, "client")
				if err := errors.Join(os.Chown(file, test.owner, 0), os.Chmod(file, os.FileMode(test.mode))); err != nil {
					t.Fatal(err)
				}
			}
			key := keyOf(t, file)
			const planted = "from the cache"
			digests.put(key, planted)
			_, c := connect(t, file)
			p := of(t, c)
			p.Hash(t.Context())
			if f := p.Evidence().Filesystem; (f.SHA256 == planted) != test.cached || f.SHA256 == "" {
				t.Errorf("owner %d mode %o: %+v, cached want %v", test.owner, test.mode, f, test.cached)
			}
		}
	})
}

func keyOf(t *testing.T, file string) fileKey {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	key, _ := cacheKey(&st, 0)
	return key
}

func TestHash_CacheNotOnNosuidMounts(t *testing.T) {
	st := unix.Stat_t{Uid: 0, Mode: 0o755}
	if _, keep := cacheKey(&st, 0); !keep {
		t.Error("root's file is not kept")
	}
	if _, keep := cacheKey(&st, unix.ST_NOSUID); keep {
		t.Error("a file on a nosuid mount is kept")
	}
}

func TestHash_CacheIsBounded(t *testing.T) {
	c := digestCache{digests: make(map[fileKey]string)}
	for i := range uint64(2*cacheEntries + 1) {
		c.put(fileKey{ino: i}, "x")
	}
	if n := len(c.digests); n > cacheEntries {
		t.Errorf("%d entries", n)
	}
}
