package vault

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/durable"
)

func laptop() Approver {
	return Approver{Name: "laptop", ID: []byte("id of the laptop"), Key: []byte("a public key, in a form of its own"),
		Transports: []string{"internal"}, AddedAt: time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)}
}

// TestApproversLieInTheSealedPart: what may approve is read only by who opens
// the vault, outlives a restart and other changes, and changed by nobody else.
func TestApproversLieInTheSealedPart(t *testing.T) {
	v, m := newVault(t)
	must(t, v.AddApprover(laptop()))
	key := laptop()
	key.Kind, key.Name, key.ID, key.Count = KindTouchID, "key", []byte("id of the key"), 7
	must(t, v.AddApprover(key))
	must(t, v.SetLedgerHead([]byte("head")))
	image, err := durable.ReadFile(filepath.Join(v.dir, FileName), maxFile)
	must(t, err)
	for _, secret := range [][]byte{laptop().ID, laptop().Key, []byte("laptop")} {
		if bytes.Contains(image, secret) {
			t.Errorf("%q stands in the file in the clear", secret)
		}
	}
	v.Lock()
	_, listed := v.Approvers()
	for _, err := range []error{listed, v.AddApprover(laptop()), v.RemoveApprover("laptop"), v.CountApprover(key.ID, 9)} {
		wantErr(t, err, ErrLocked)
	}
	v = loadUnlocked(t, v.dir, m)
	all, err := v.Approvers()
	must(t, err)
	if fmt.Sprint(all) != fmt.Sprint([]Approver{laptop(), key}) {
		t.Errorf("kept %+v", all)
	}
	must(t, v.RemoveApprover("laptop"))
	wantErr(t, v.RemoveApprover("laptop"), ErrNoApprover)
	must(t, v.RemoveApprover("key"))
	if all, _ := v.Approvers(); len(all) != 0 {
		t.Errorf("left %+v", all)
	}
}

func TestApproversAreTheirOwn(t *testing.T) {
	v, _ := newVault(t)
	must(t, v.AddApprover(laptop()))
	other := laptop()
	other.Name = "another name, the same passkey"
	wantErr(t, v.AddApprover(other), ErrApproverThere)
	other = laptop()
	other.ID = []byte("the same name, another passkey")
	wantErr(t, v.AddApprover(other), ErrApproverThere)
	for what, spoil := range map[string]func(*Approver){
		"no name":        func(a *Approver) { a.Name = "" },
		"a long name":    func(a *Approver) { a.Name = strings.Repeat("n", 65) },
		"no id":          func(a *Approver) { a.ID = nil },
		"a long id":      func(a *Approver) { a.ID = make([]byte, 1024) },
		"no key":         func(a *Approver) { a.Key = nil },
		"a long key":     func(a *Approver) { a.Key = make([]byte, 2049) },
		"no text":        func(a *Approver) { a.Name = "\xff" },
		"an odd kind":    func(a *Approver) { a.Kind = "key" },
		"much transport": func(a *Approver) { a.Transports = make([]string, 9) },
	} {
		a := laptop()
		a.Name, a.ID = "new", []byte("new")
		spoil(&a)
		if v.AddApprover(a) == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

// TestApproversCount: of many answers with one count only one is taken.
func TestApproversCount(t *testing.T) {
	v, _ := newVault(t)
	a := laptop()
	a.Count = 5
	must(t, v.AddApprover(a))
	wantErr(t, v.CountApprover(a.ID, 5), ErrCounted)
	wantErr(t, v.CountApprover(a.ID, 4), ErrCounted)
	wantErr(t, v.CountApprover([]byte("nobody"), 9), ErrNoApprover)
	var took [4]error
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() { took[i] = v.CountApprover(a.ID, 6) })
	}
	all.Wait()
	yes := 0
	for _, err := range took {
		if err == nil {
			yes++
		}
	}
	if yes != 1 {
		t.Errorf("%d of %d answers with one count were taken", yes, len(took))
	}
}
