package broker

import (
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/action"
	"github.com/yett-broker/yett/internal/session"
	"github.com/yett-broker/yett/internal/wire"
)

// Whatever callers claim, the list of sessions fits a frame, and those that can
// still be revoked stand in it first.
func TestSessionsFitAFrameLiveOnesFirst(t *testing.T) {
	claims := action.Claims{Program: strings.Repeat("p", 32<<10), Labels: map[string]string{}}
	for i := range 100 {
		claims.Labels[strings.Repeat("n", 100)+string(rune('a'+i%26))+string(rune('a'+i/26))] = strings.Repeat("\u202e", 1000)
	}
	caller := brief(action.Caller{Claims: claims})
	var l wire.List[wire.Session]
	for i := range 3000 {
		s := wire.Session{SessionID: action.NewID("s_"), State: string(session.Ended), Caller: caller}
		if i == 0 {
			s.State = string(session.Active)
		}
		l.Items = append(l.Items, s)
	}
	got := newest(l)
	frame, err := wire.Reply{ID: []byte("1"), Result: got}.Encode()
	if err != nil || len(frame) > wire.MaxFrame {
		t.Fatalf("%d bytes, %v", len(frame), err)
	}
	if len(got.Items) < 50 || got.Items[0].SessionID != l.Items[0].SessionID || got.Hidden != 3000-len(got.Items) {
		t.Fatalf("%d listed, %d hidden; the live one is listed: %v", len(got.Items), got.Hidden, got.Items[0].SessionID == l.Items[0].SessionID)
	}
	if last := got.Items[len(got.Items)-1]; last.SessionID != l.Items[2999].SessionID {
		t.Error("the newest is not listed")
	}
}

// Whoever guesses on many channels of one process waits for one try only.
func TestOneTryOfAProcessWaits(t *testing.T) {
	var b backoff
	trying, end := make(chan struct{}), make(chan struct{})
	go b.try("guesser", nil, func() error { close(trying); <-end; return errWrong })
	<-trying
	for range 20 {
		if err := b.try("guesser", nil, func() error { t.Error("tried"); return nil }); err != errTrying {
			t.Fatalf("a second try of the process: %v", err)
		}
	}
	done := make(chan error)
	go func() { done <- b.try("person", nil, func() error { return nil }) }()
	close(end)
	if err := <-done; err != nil {
		t.Fatalf("the person's try: %v", err)
	}
}
