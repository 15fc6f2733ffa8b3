package loginkeys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// memory is a keychain in memory. It keeps what Read gave, so that a test sees
// whether it was wiped.
type memory struct {
	mu    sync.Mutex
	items map[string][]byte
	given [][]byte
	hold  chan struct{} // Read waits for it, as for a person at the keychain's prompt
}

func (m *memory) Add(service, account, label string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := service + "\n" + account
	if m.items[name] != nil {
		return fmt.Errorf("adding: %w", ErrItemThere)
	}
	if m.items == nil {
		m.items = map[string][]byte{}
	}
	m.items[name] = bytes.Clone(value)
	return nil
}

func (m *memory) Read(service, account string) ([]byte, error) {
	if m.hold != nil {
		<-m.hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value := bytes.Clone(m.items[service+"\n"+account])
	if value == nil {
		return nil, fmt.Errorf("reading: %w", ErrNoItem)
	}
	m.given = append(m.given, value)
	return value, nil
}

func (m *memory) Delete(service, account string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.items[service+"\n"+account] == nil {
		return fmt.Errorf("deleting: %w", ErrNoItem)
	}
	delete(m.items, service+"\n"+account)
	return nil
}

func (m *memory) reads() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.given
}

// gate answers as a test says, and keeps the reasons.
type gate struct {
	answer error
	asked  []string
}

func (g *gate) Ask(_ context.Context, reason string) error {
	g.asked = append(g.asked, reason)
	return g.answer
}

var key = bytes.Repeat([]byte{7}, keySize)

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestShares: a share is read back by its salt, lent for one call, and gone after
// it was removed.
func TestShares(t *testing.T) {
	m := &memory{}
	s, ctx := Store{Keychain: m}, t.Context()
	wantErr(t, "adding", s.AddShare(ctx, []byte{1}, key), nil)
	wantErr(t, "adding again", s.AddShare(ctx, []byte{1}, key), ErrItemThere)
	if string(m.items["Yett vault share\n01"]) != "yett-share-v1\n"+string(key) {
		t.Errorf("the items are %q", m.items)
	}
	var lent []byte
	err := s.UseShare(ctx, []byte{1}, func(share []byte) error {
		lent = share
		if !bytes.Equal(share, key) {
			t.Errorf("lent %x", share)
		}
		return ErrItem
	})
	wantErr(t, "the user's own error", err, ErrItem)
	if !bytes.Equal(lent, make([]byte, keySize)) || !bytes.Equal(m.given[0], make([]byte, len(magicShare)+keySize)) {
		t.Error("the share was not wiped")
	}
	never := func([]byte) error { t.Error("something was lent"); return nil }
	wantErr(t, "another salt", s.UseShare(ctx, []byte{2}, never), ErrNoItem)
	wantErr(t, "removing", s.RemoveShare(ctx, []byte{1}), nil)
	wantErr(t, "removing again", s.RemoveShare(ctx, []byte{1}), nil)
	wantErr(t, "after it was removed", s.UseShare(ctx, []byte{1}, never), ErrNoItem)
	if s.AddShare(ctx, []byte{1}, key[:31]) == nil {
		t.Error("a short share was taken")
	}
}

// TestItemsOfAnotherForm: an item that is not as Yett writes it is not used.
func TestItemsOfAnotherForm(t *testing.T) {
	m := &memory{items: map[string][]byte{}}
	s := Store{Keychain: m, Gate: &gate{}}
	for what, value := range map[string]string{
		"a Touch ID key":     magicTouchID + string(key),
		"a later form":       "yett-share-v2\n" + string(key),
		"a short one":        magicShare + string(key[1:]),
		"a long one":         magicShare + string(key) + "x",
		"an empty one":       "",
		"somebody's own":     "hunter2",
		"the key by itself":  string(key),
		"letters for a case": "YETT-share-v1\n" + string(key),
	} {
		m.items["Yett vault share\n01"] = []byte(value)
		err := s.UseShare(t.Context(), []byte{1}, func([]byte) error { t.Errorf("%s was lent", what); return nil })
		wantErr(t, what, err, ErrItem)
	}
}

// TestSeedsAreBehindTheGate: without a yes the key is not even read.
func TestSeedsAreBehindTheGate(t *testing.T) {
	m, g, no := &memory{}, &gate{}, errors.New("the prompt was cancelled")
	s, ctx := Store{Keychain: m, Gate: g}, t.Context()
	wantErr(t, "adding", s.AddSeed(ctx, "/home", key), nil)
	g.answer = no
	err := s.UseSeed(ctx, "/home", "approve FALCON ORCHID once", func([]byte) error { t.Error("lent without a yes"); return nil })
	wantErr(t, "a no", err, no)
	if len(m.reads()) != 0 || len(g.asked) != 1 || g.asked[0] != "approve FALCON ORCHID once" {
		t.Errorf("read %d times, asked %q", len(m.reads()), g.asked)
	}
	g.answer = nil
	used := false
	wantErr(t, "a yes", s.UseSeed(ctx, "/home", "approve", func(seed []byte) error { used = bytes.Equal(seed, key); return nil }), nil)
	if !used || !bytes.Equal(m.reads()[0], make([]byte, len(magicTouchID)+keySize)) {
		t.Errorf("used %v, or not wiped", used)
	}
	wantErr(t, "another home", s.UseSeed(ctx, "/other", "approve", func([]byte) error { return nil }), ErrNoItem)
	wantErr(t, "removing another's", s.RemoveSeed(ctx, "/home", func([]byte) bool { return false }), nil)
	if len(m.items) != 1 {
		t.Error("a key that is another's was removed")
	}
	wantErr(t, "removing", s.RemoveSeed(ctx, "/home", func(seed []byte) bool { return bytes.Equal(seed, key) }), nil)
	wantErr(t, "removing again", s.RemoveSeed(ctx, "/home", func([]byte) bool { return true }), nil)
	if len(m.items) != 0 {
		t.Errorf("left %q", m.items)
	}
}

// TestAKeychainThatWaits: a call that does not come back is waited for until ctx
// ends, and what it gives later is not lent.
func TestAKeychainThatWaits(t *testing.T) {
	m := &memory{}
	s := Store{Keychain: m}
	wantErr(t, "adding", s.AddShare(t.Context(), []byte{1}, key), nil)
	m.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.UseShare(ctx, []byte{1}, func([]byte) error { t.Error("lent after the end"); return nil })
	wantErr(t, "interrupted", err, context.Canceled)
	close(m.hold)
}
