//go:build !linux && !darwin

package session

import "time"

var start = time.Now()

// sinceBoot counts from the start of the program. It does not count
// suspension, which is one of the reasons why serving is refused here.
func sinceBoot() time.Duration { return time.Since(start) }
