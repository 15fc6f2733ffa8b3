package doctor

import (
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/peer"
)

// kernelFinding asks the kernel for the evidence that Yett lives by.
func kernelFinding() Finding {
	if err := peer.Floor(); err != nil {
		return bad("kernel", approval.Printable(err.Error()), KernelOld)
	}
	return good("kernel", "it names the process behind a socket")
}
