package console

import (
	"math"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
)

// TestALongGrantStaysTooLong counts minutes that a duration cannot hold: they are
// refused as too long, not taken for what is left after the overflow.
func TestALongGrantStaysTooLong(t *testing.T) {
	longest := int(approval.MaxGrant / time.Minute)
	wrapping := int(math.MaxUint64/uint64(time.Minute)) + 31 // 31 minutes modulo 2^64 ns
	for _, minutes := range []int{longest + 1, wrapping, math.MaxInt, -wrapping, math.MinInt} {
		until := decision{Choice: approval.ChoiceUntil, Minutes: minutes}.approveAll().Until
		switch ahead := time.Until(until); {
		case minutes > 0 && ahead <= approval.MaxGrant-time.Second:
			t.Errorf("%d minutes end %v ahead", minutes, ahead)
		case minutes < 0 && ahead > 0:
			t.Errorf("%d minutes end %v ahead", minutes, ahead)
		}
	}
}
