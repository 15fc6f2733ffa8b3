package sshexec

import (
	"crypto/sha256"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yett-broker/yett/internal/bulk"
)

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// H18 for SSH: a command that floods, and a copy from a host, bring no more than
// large streams may while another session acts. Of 32 MiB the burst is 8. The clock
// is one of the test's own, which goes on when everybody waits for it.
func TestH18_FloodsOverSSHWaitForOthers(t *testing.T) {
	const size = 32 << 20
	for name, bring := range map[string]func(bulk.Stream){
		"a command's stream": func(pace bulk.Stream) {
			(&stream{}).drain(io.LimitReader(zeros{}, size), 1<<10, pace, make(chan struct{}))
		},
		"a copy": func(pace bulk.Stream) {
			io.Copy(&counted{to: io.Discard, hash: sha256.New(), limit: size, bulk: pace}, io.LimitReader(zeros{}, size))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bulk.Acts("another session")
				bulk.Acts("this session")
				began := time.Now()
				bring(bulk.Stream{Session: "this session"})
				if took, least := time.Since(began), (size-9<<20)*time.Second/bulk.Rate; took < least {
					t.Errorf("32 MiB came within %v, want at least %v", took, least)
				}
			})
		})
	}
}
