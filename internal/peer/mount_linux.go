package peer

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// decidedByOthers are types of file systems whose content another process or
// machine decides at every read: a digest of it says nothing. A name before a
// dot stands for its subtypes ("fuse.sshfs").
var decidedByOthers = map[string]bool{
	"fuse": true, "fuseblk": true, "virtiofs": true, "9p": true, "vboxsf": true, "vmhgfs": true, "prl_fs": true,
	"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "smbfs": true, "ncpfs": true,
	"afs": true, "coda": true, "ceph": true, "ocfs2": true, "gfs2": true, "lustre": true, "gpfs": true,
	"beegfs": true, "orangefs": true, "pvfs2": true, "panfs": true, "acfs": true,
}

func othersDecide(fsType string) bool {
	base, _, _ := strings.Cut(fsType, ".")
	return decidedByOthers[base]
}

// fsTypeOf says on which type of file system the file behind fd is, by its
// mount: statfs would ask the server of a FUSE mount, which may never answer.
// Mounts have numbers of their own in the whole system: it is one that we see,
// or that the process sees, for fd is its program.
func (d procDir) fsTypeOf(fd int) (string, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return "", errors.Join(errors.New("its mount is not named"), err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil {
		if fsType, err := parseMountinfo(string(text), st.Mnt_id); err == nil {
			return fsType, nil
		}
	}
	if text, err = d.read("mountinfo", 4<<20); err != nil {
		return "", fmt.Errorf("asking for its mount: %w", err)
	}
	fsType, err := parseMountinfo(string(text), st.Mnt_id)
	if err != nil {
		return "", fmt.Errorf("asking for its mount: %w", err)
	}
	return fsType, nil
}

// parseMountinfo returns the type of one mount: the field after the lone dash.
// Spaces within a field are escaped by the kernel, so a path cannot forge one.
func parseMountinfo(text string, id uint64) (string, error) {
	want := fmt.Sprintf("%d ", id)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, want) {
			continue
		}
		_, after, ok := strings.Cut(line, " - ")
		fsType, _, named := strings.Cut(after, " ")
		if !ok || !named || fsType == "" {
			return "", errors.New("mountinfo: a line without a type")
		}
		return fsType, nil
	}
	return "", errors.New("the mount is not there any more")
}
