package console

import (
	"context"
	"net/http/httptest"
	"testing"
)

// halfOpen is a page that may read, or not yet.
type halfOpen struct {
	Page
	reading bool
}

func (p halfOpen) Reading() bool { return p.reading }

// TestOnlyAProofHoldsConnections: a page that waits for its proof has a token
// too; the connections that it comes over still make room for others.
func TestOnlyAProofHoldsConnections(t *testing.T) {
	for _, reading := range []bool{true, false} {
		c := &Console{pages: map[tokenHash]*opened{}}
		v := &visit{key: "a process"}
		r := httptest.NewRequest("GET", "/events", nil)
		r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
		r.Header.Set("Authorization", "Bearer "+c.keep(halfOpen{reading: reading}, v.key))
		if c.find(r) == nil {
			t.Fatal("the token leads to no page")
		}
		if v.proven != reading {
			t.Errorf("a page that may read %v holds its connection %v", reading, v.proven)
		}
	}
}
