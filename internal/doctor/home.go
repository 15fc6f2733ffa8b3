package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/durable"
	"github.com/yett-broker/yett/internal/vault"
)

// homeFindings are about who may read and change the data directory and all
// files in it: vault, previous generation, backups, ledger.
func homeFindings(home string) []Finding {
	n := lookAt(home)
	if n == nil {
		return []Finding{bad("data_directory", "there is no "+approval.Printable(home), HomeMissing)}
	}
	if n.Type != "directory" || n.Owner != unix.Getuid() || n.Mode != "0700" {
		return []Finding{bad("data_directory", n.String(), HomeOpen)}
	}
	all := []Finding{good("data_directory", n.String())}
	entries, err := os.ReadDir(home)
	if err != nil {
		return append(all, bad("files", approval.Printable(err.Error()), HomeOpen))
	}
	open := 0
	for _, e := range entries {
		f := lookAt(filepath.Join(home, e.Name()))
		if f == nil || f.Type == "directory" {
			continue // gone since, or the socket's directory, which has its own finding
		}
		var mode uint32
		fmt.Sscanf(f.Mode, "%o", &mode)
		if mode&0o077 != 0 || f.Owner != n.Owner || f.Type != "regular file" {
			open++
			all = append(all, bad("files", f.String(), FileOpen))
		}
	}
	if open == 0 {
		all = append(all, good("files", fmt.Sprintf("%d entries, all of this account alone", len(entries))))
	}
	return all
}

// vaultFindings read the vault's file and open nothing in it.
func vaultFindings(home string) []Finding {
	v, err := vault.Load(home)
	switch {
	case errors.Is(err, vault.ErrNoVault):
		return []Finding{bad("vault", "there is no vault", NoVault)}
	case err != nil:
		return []Finding{bad("vault", approval.Printable(err.Error()), VaultDamaged)}
	}
	var slots []string
	for _, s := range v.Slots() {
		slots = append(slots, s.Name)
	}
	found := fmt.Sprintf("generation %d, opened by %s", v.Generation(), strings.Join(slots, " or "))
	f := good("vault", found)
	if !strings.Contains(found, vault.SlotRecovery) {
		f = weaker("vault", found, NoRecovery)
	}
	if back, before := v.RolledBack(); back {
		f = bad("vault", fmt.Sprintf("%s; the previous generation is %d, a later one", found, before), VaultRolledBack)
	}
	return append([]Finding{f}, earlierFindings(home)...)
}

// earlierFindings are about earlier files of the vault, each of which opens
// with what opened it then.
func earlierFindings(home string) []Finding {
	var all []Finding
	if n := lookAt(filepath.Join(home, vault.FileName+durable.Previous)); n != nil {
		all = append(all, good("previous_generation", n.String()))
	} else {
		all = append(all, weaker("previous_generation", "there is none yet: the vault was saved once", NoPrevious))
	}
	kept, _ := filepath.Glob(filepath.Join(home, vault.FileName+".replaced-*")) // the pattern is ours
	for _, path := range kept {
		if n := lookAt(path); n != nil {
			all = append(all, weaker("replaced_vault", n.String(), ReplacedKept))
		}
	}
	return all
}

// Below lowBytes and lowInodes the broker still works; without fullBytes the
// next group of rows may not find room.
const (
	lowBytes, fullBytes   = 256 << 20, 16 << 20
	lowInodes, fullInodes = 1000, 20
)

func diskFindings(home string) []Finding {
	var st unix.Statfs_t
	switch err := unix.Statfs(home, &st); {
	case err == unix.ENOENT:
		return nil // said by the finding about the directory
	case err != nil:
		return []Finding{bad("disk", "the file system cannot be asked: "+err.Error(), DiskUnknown)}
	}
	free := uint64(st.Bavail) * uint64(st.Bsize)
	found := fmt.Sprintf("%d MiB free", free>>20)
	inodes := uint64(st.Ffree)
	if st.Files != 0 { // some file systems have no fixed number
		found += fmt.Sprintf(", %d inodes free", inodes)
	} else {
		inodes = lowInodes
	}
	switch {
	case free < fullBytes || inodes < fullInodes:
		return []Finding{bad("disk", found, DiskFull)}
	case free < lowBytes || inodes < lowInodes:
		return []Finding{weaker("disk", found, DiskLow)}
	}
	return []Finding{good("disk", found)}
}

// clockSlack allows for file systems with coarse times.
const clockSlack = 5 * time.Second

// clockFinding compares the clock with the newest time in the data directory:
// nothing there was written in the future.
func clockFinding(home string) Finding {
	now := time.Now()
	found := "the clock says " + stamp(now)
	newest, name := newestIn(home)
	switch {
	case newest.After(now.Add(clockSlack)):
		return bad("clock", fmt.Sprintf("%s, but %s was written at %s", found, name, stamp(newest)), ClockBehind)
	case now.Year() < 2025:
		return bad("clock", found, ClockBehind)
	}
	return good("clock", found)
}

func newestIn(home string) (newest time.Time, name string) {
	filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // said by the finding about files
		}
		if i, err := d.Info(); err == nil && i.ModTime().After(newest) {
			newest, name = i.ModTime(), approval.Printable(d.Name())
		}
		return nil
	})
	return newest, name
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
