package broker

import (
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/httpexec"
)

func crm(t *testing.T) access.Credential {
	c, _ := parsed(t, mintedAccess).Credential("crm")
	return c
}

func minted(access string, lives time.Duration) mintResult {
	return mintResult{minted: &httpexec.Minted{Access: []byte(access), Lives: lives}}
}

// TestTokensExpire: an access token is used until shortly before its end, by the
// clock that goes on while the machine sleeps; a refused one is used no more.
func TestTokensExpire(t *testing.T) {
	k, c := newTokens(), crm(t)
	first := k.claim(c, 0)
	if first.turn == nil || k.claim(c, 0).wait == nil {
		t.Fatal("not one turn for the first who asks")
	}
	k.done(first, c.Name, 0, minted("token-1", time.Hour))
	if got := k.claim(c, time.Hour-tokenMargin-time.Second); string(got.access) != "token-1" {
		t.Errorf("before its end: %+v", got)
	}
	k.spoil(c.Name, []byte("token-0")) // another one than there is
	if got := k.claim(c, 0); string(got.access) != "token-1" {
		t.Errorf("another one was refused: %+v", got)
	}
	second := k.claim(c, time.Hour-tokenMargin)
	if second.turn == nil {
		t.Fatalf("at its end: %+v", second)
	}
	k.done(second, c.Name, 0, minted("token-2", 0))
	k.spoil(c.Name, []byte("token-2"))
	third := k.claim(c, 0)
	if third.turn == nil {
		t.Fatalf("a refused one: %+v", third)
	}
	failure := &mintFailure{"why", "next"}
	k.done(third, c.Name, 0, mintResult{failed: failure})
	if got := k.claim(c, failedPause-1); got.failed != failure {
		t.Errorf("right after a failure: %+v", got)
	}
	if got := k.claim(c, failedPause); got.turn == nil {
		t.Errorf("some time after a failure: %+v", got)
	}
}

// TestTokensAreForgotten: what was minted for a value, or under terms, that were
// replaced meanwhile is not used, and is wiped.
func TestTokensAreForgotten(t *testing.T) {
	k, c := newTokens(), crm(t)
	first := k.claim(c, 0)
	k.forget()
	late := minted("token-1", time.Hour)
	k.done(first, c.Name, 0, late)
	if string(late.minted.Access) == "token-1" {
		t.Error("it was not wiped")
	}
	second := k.claim(c, 0)
	if second.turn == nil {
		t.Fatalf("after a value was replaced: %+v", second)
	}
	k.done(second, c.Name, 0, minted("token-2", time.Hour))
	kept := k.of[c.Name].access
	other := c
	other.OAuth = &access.OAuth{Endpoint: c.OAuth.Endpoint, ClientID: c.OAuth.ClientID, Auth: c.OAuth.Auth, Scopes: []string{"admin"}}
	third := k.claim(other, 0)
	if third.turn == nil || string(kept) == "token-2" {
		t.Fatalf("under other scopes: %+v, %q", third, kept)
	}

	// Locking waits for what has begun to leave, and for nothing else.
	began := time.Now()
	k.close()
	if time.Since(began) > mintPatience/2 {
		t.Error("it waited for what has not begun")
	}
	if len(k.of) != 0 {
		t.Errorf("a lock left %v", k.of)
	}
	k.done(third, c.Name, 0, minted("token-3", time.Hour))
	if got := k.claim(other, 0); got.turn == nil {
		t.Errorf("after a lock: %+v", got)
	}
}
