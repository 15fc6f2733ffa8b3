package broker

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A flood of refusals becomes at most twenty rows a second, and goes on being
// recorded.
func TestRefusalsOfOneChannelAreLimited(t *testing.T) {
	var r refusals
	count := func(now time.Duration, tries int) (n int) {
		for range tries {
			if r.allow(now, 20) {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		now         time.Duration
		tries, want int
	}{
		{0, 1000, 20}, {time.Second - 1, 1000, 0}, {time.Second, 15, 15}, {time.Second + 500*time.Millisecond, 15, 5},
		{2 * time.Second, 20, 20}, {time.Hour, 1000, 20}, {time.Hour + time.Second, 1, 1},
	} {
		if got := count(step.now, step.tries); got != step.want {
			t.Errorf("at %v: %d of %d are recorded, want %d", step.now, got, step.tries, step.want)
		}
	}
	var other refusals
	if !other.allow(time.Hour, 20) {
		t.Error("one channel's flood limits another")
	}
}

func TestFramesKeepsFilesOnly(t *testing.T) {
	stack := "goroutine 7 [running]:\nmain.use({0xc000012345, 0x14})\n\t/src/use.go:12 +0x1d\npanic({0x4a?, 0xsecret})\n" +
		"\t/go/panic.go:787 +0x132\ncreated by main.serve in goroutine 1\n\t/src/serve.go:3 +0x2\n\n\t/src/last.go:1"
	if got, want := frames([]byte(stack)), "/src/use.go:12 +0x1d;/go/panic.go:787 +0x132;/src/serve.go:3 +0x2;/src/last.go:1;"; got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	for _, none := range []string{"", "\n", "\n\n", "a", "no tab\n"} {
		if got := frames([]byte(none)); got != "" {
			t.Errorf("frames(%q) = %q", none, got)
		}
	}
}

// The record of a fault says where, and nothing of what was there.
func TestAFaultIsLoggedWithoutValues(t *testing.T) {
	var out strings.Builder
	b := &Broker{Config: Config{Log: slog.New(slog.NewTextHandler(&out, nil))}}
	func() {
		defer func() { b.logPanic("perform", recover()) }()
		panic("hunter2-secret-value")
	}()
	if log := out.String(); strings.Contains(log, "hunter2") || !strings.Contains(log, "record_test.go") || !strings.Contains(log, "type=string") {
		t.Errorf("the log says %s", log)
	}
}
