package broker

import (
	"context"
	"errors"
	"time"

	"github.com/yett-broker/yett/internal/ledger"
)

const (
	// headEvery is how often a head is signed while rows are written, and
	// vaultHeadEvery how often the vault keeps one: that is a save of its file.
	headEvery      = time.Second
	vaultHeadEvery = 10 * time.Minute
	// headPatience bounds how long locking waits for the last head.
	headPatience = 300 * time.Millisecond
)

// followHead signs the ledger's head after rows, until ctx ends.
func (b *Broker) followHead(ctx context.Context) {
	tick := time.NewTicker(headEvery)
	defer tick.Stop()
	saved := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		open, toVault := b.peekState(), time.Since(saved) >= vaultHeadEvery
		if open == nil {
			continue
		}
		b.keepHead(open, toVault)
		if toVault {
			saved = time.Now()
		}
	}
}

// peekState is what exists while unlocked; looking at it is no use of the vault.
func (b *Broker) peekState() *unlocked {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// keepHead signs the head beside the database, and if asked to puts it into the
// vault. Then it signs again, so that the head knows that save: vault and head
// name each other's generation. A crash in between leaves a vault that is newer
// than the head says, which is no rollback.
func (b *Broker) keepHead(open *unlocked, toVault bool) {
	b.heading.Lock()
	defer b.heading.Unlock()
	if !b.signHead(open) || !toVault {
		return
	}
	if open.heads.size == open.heads.vaultsSize {
		return // the vault has it
	}
	if err := b.Vault.SetLedgerHead(open.heads.newest); err != nil {
		b.Log.Warn("the vault could not keep the ledger's head", "error", err)
		return
	}
	open.heads.vaultsSize = open.heads.size
	b.signHead(open)
}

func (b *Broker) signHead(open *unlocked) bool {
	head, size, err := b.Ledger.SignHead(open.log, b.Vault.Generation())
	switch {
	case errors.Is(err, ledger.ErrTampered), errors.Is(err, ledger.ErrUnchecked), errors.Is(err, ledger.ErrKeyGone):
		return false // said elsewhere
	case err != nil:
		b.Log.Warn("the ledger's head could not be kept", "error", err)
		return false
	}
	open.heads.newest, open.heads.size = head, size
	return true
}

// leaveHead keeps the newest head before the keys go. Whatever the disk does,
// locking does not wait longer than a moment.
func (b *Broker) leaveHead(open *unlocked) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Ledger.Drain(); err != nil {
			b.Log.Warn("the ledger's last head lacks the newest rows", "error", err)
		}
		b.keepHead(open, true)
	}()
	select {
	case <-done:
	case <-time.After(headPatience):
		b.Log.Warn("locked before the ledger's head was kept")
	}
}
