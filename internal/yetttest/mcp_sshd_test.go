package yetttest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pkg/sftp"

	"github.com/yett-broker/yett/internal/demo"
)

// sshd lets an account in only if the account database has it, and the one that
// the tests change to is not there. So before the change root starts a server,
// for a key that only that account can read; what is run there is run as that
// account.
var rootSSHD *SSHD

const sshdNote = "sshd.json"

type sshdAt struct {
	Address, User, HostKey string
	ClientKey              []byte
}

func serveSSH(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	files := filepath.Join(dir, "sshd")
	if err := os.Mkdir(files, 0o700); err != nil {
		return err
	}
	s, err := demo.StartSSHDIn(files, fmt.Sprintf(
		`ForceCommand exec setpriv --reuid %[1]d --regid %[1]d --clear-groups sh -c "$SSH_ORIGINAL_COMMAND"`, AccountID),
		"Subsystem sftp GORACE=atexit_sleep_ms=0 "+envSFTP+"=1 "+filepath.Join(dir, "tests"))
	if errors.Is(err, demo.ErrNoSSHD) {
		return nil // StartSSHD says so to the tests that need it
	}
	if err != nil {
		return err
	}
	rootSSHD = s
	note, err := json.Marshal(sshdAt{s.Address, s.User, s.HostKey, s.ClientKey})
	if err != nil {
		return err
	}
	at := filepath.Join(dir, sshdNote)
	if err := os.WriteFile(at, note, 0o600); err != nil {
		return err
	}
	return os.Chown(at, AccountID, AccountID)
}

// envSFTP has this program serve SFTP on its standard streams: OpenSSH's own
// server does nothing for an account that the account database does not have.
const envSFTP = "YETTTEST_SFTP"

func serveSFTP() error {
	s, err := sftp.NewServer(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout})
	if err != nil {
		return err
	}
	return s.Serve()
}

func stopSSH() {
	if rootSSHD != nil {
		rootSSHD.Stop()
	}
}

// reachableSSHD is a real OpenSSH server that lets this account in.
func reachableSSHD(t *testing.T) sshdAt {
	t.Helper()
	note, err := os.ReadFile(Bin(sshdNote))
	if errors.Is(err, fs.ErrNotExist) {
		s := StartSSHD(t, "Subsystem sftp internal-sftp")
		return sshdAt{s.Address, s.User, s.HostKey, s.ClientKey}
	}
	must(t, err)
	var at sshdAt
	must(t, json.Unmarshal(note, &at))
	return at
}
