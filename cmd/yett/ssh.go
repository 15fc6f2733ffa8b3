package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/wire"
)

func newSSH(a *app) *cobra.Command {
	return parent("ssh", "SSH keys and hosts: make a key, look at a host's keys, take over what ssh knows", newSSHKeygen(a), newSSHPublic(a), newSSHScan(a), newSSHImport(a))
}

// openKey returns a private key without its passphrase, which it asks for if
// there is one. The open key is in memory only, and the caller clears it; value
// is cleared here where it is not what is returned.
func (a *app) openKey(ctx context.Context, name string, value []byte, fd int) ([]byte, error) {
	var phrase []byte
	defer func() { clear(phrase) }()
	return a.openKeyOnce(ctx, name, value, fd, &phrase)
}

// isEncryptedKey tells a private key with a passphrase from any other value.
func isEncryptedKey(value []byte) bool {
	_, err := sshexec.ParseKey(value)
	var why *sshexec.KeyError
	return errors.As(err, &why) && why.Reason == sshexec.KeyEncrypted
}

// openKeyOnce is openKey for several keys that may have one passphrase: it is
// asked for anew when the last one does not open a key, and a descriptor has one
// for all.
func (a *app) openKeyOnce(ctx context.Context, name string, value []byte, fd int, phrase *[]byte) ([]byte, error) {
	if !isEncryptedKey(value) {
		_, err := sshexec.ParseKey(value)
		return value, err
	}
	defer clear(value)
	if *phrase != nil {
		open, err := sshexec.UnlockKey(value, *phrase)
		if err == nil || fd >= 0 {
			return open, err
		}
		clear(*phrase)
	}
	var err error
	if *phrase, err = a.keyPassphrase(ctx, name, fd); err != nil {
		return nil, err
	}
	return sshexec.UnlockKey(value, *phrase)
}

// keyPassphrase reads the passphrase of a key: one line, which may be empty.
func (a *app) keyPassphrase(ctx context.Context, name string, fd int) ([]byte, error) {
	if fd < 0 {
		if a.json {
			return nil, usageError{errors.New("the key is encrypted: --key-passphrase-fd gives its passphrase")}
		}
		phrase, err := ask(ctx, "Passphrase of the key "+name+" (not Yett's own): ", true)
		var fail *wire.Error
		if errors.As(err, &fail) && fail.Code == wire.CodeProofRequired { // no terminal
			return nil, usageError{errors.New("the key is encrypted, and there is no terminal to ask on; --key-passphrase-fd gives its passphrase")}
		}
		return phrase, err
	}
	return readLine(fd)
}

// badKey says that a key cannot be used, and what could be.
func badKey(name string, err error) error {
	var fail *wire.Error
	var usage usageError
	if errors.As(err, &fail) || errors.As(err, &usage) || errors.Is(err, errInterrupted) {
		return err
	}
	e := wire.Errorf(wire.CodeBadRequest, "The key %s cannot be used: %v; nothing was changed.", name, err)
	e.NextStep = "Give the whole private key, and its passphrase if it has one; or let Yett make one that lies nowhere else: yett ssh keygen, yett add ssh --generate-key."
	var why *sshexec.KeyError
	if errors.As(err, &why) {
		switch why.Reason {
		case sshexec.KeyPassphrase:
			e.NextStep = "Try the passphrase again. ssh-keygen -y -f FILE tells whether ssh can open the key with it."
		case sshexec.KeyPublic:
			e.NextStep = "The private key is the file without .pub."
		case sshexec.KeyCostly:
			e.NextStep = "Write it anew with fewer rounds (ssh-keygen -p -a 100 -f FILE), and give that."
		case sshexec.KeyHardware:
			e.NextStep = "Such a key wants a person's touch for each signature and never leaves its device. Let Yett make one for this host, yett ssh keygen NAME, and add its public part to the host's authorized_keys."
		case sshexec.KeyUnsupported:
			e.NextStep = "Convert it (ssh-keygen -i, or puttygen -O private-openssh), or let Yett make one: yett ssh keygen NAME."
		}
	}
	return e
}
