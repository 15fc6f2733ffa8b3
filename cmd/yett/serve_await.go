package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/ledger"
	"github.com/yett-broker/yett/internal/vault"
)

// answeringTime is how long a broker that still answers is given: one that
// was told to end a moment ago closes its socket first.
const answeringTime = 500 * time.Millisecond

// untilLetGo tries again what a broker that is ending still holds, as long as
// one may take to end.
func untilLetGo[T any](ctx context.Context, log *slog.Logger, try func() (T, error)) (T, error) {
	begun, said := time.Now(), false
	for {
		v, err := try()
		if err == nil || time.Since(begun) > heldFor(err) {
			return v, err
		}
		if !said && time.Since(begun) > answeringTime { // a broker that simply runs is told as the error alone
			log.Info("waiting for another broker to let go", "error", err)
			said = true
		}
		select {
		case <-time.After(tryAgain):
		case <-ctx.Done():
			return v, err
		}
	}
}

// heldFor is how long it is worth to wait when this is the error.
func heldFor(err error) time.Duration {
	var used *endpoint.InUseError
	switch {
	case errors.Is(err, ledger.ErrInUse):
		return endTime
	case errors.As(err, &used) && used.Answering:
		return answeringTime
	case errors.As(err, &used):
		return endTime
	}
	return -1
}

// openLedger opens the ledger once nobody else has it, and only then reads the
// vault: a broker saves it last of all.
func openLedger(ctx context.Context, log *slog.Logger, loc endpoint.Location, boot string, v *vault.Vault) (*ledger.Ledger, *vault.Vault, error) {
	l, err := untilLetGo(ctx, log, func() (*ledger.Ledger, error) {
		return ledger.Open(loc.Home, ledger.Options{AuditPublicKey: v.AuditPublicKey(), Boot: boot})
	})
	if err != nil {
		return nil, nil, ledgerUnusable(err)
	}
	if v, err = vault.Load(loc.Home); err != nil {
		l.Close()
		return nil, nil, vaultUnusable(loc, err)
	}
	l.TellVault(v.Generation())
	return l, v, nil
}
