package broker

import (
	"os"
	"syscall"

	"github.com/yett-broker/yett/internal/wire"
)

// Status is what broker.status answers.
func (b *Broker) Status() wire.Status { return b.status() }

// updateWaiting reports whether the installed yett is another file than the
// one that runs: an update takes effect at the next start. Where either cannot
// be looked at nothing is said.
func (b *Broker) updateWaiting() bool {
	device, inode, err := b.OwnFile()
	if err != nil {
		return false
	}
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	st, ok := running.Sys().(*syscall.Stat_t)
	return ok && (uint64(st.Dev) != device || st.Ino != inode)
}
