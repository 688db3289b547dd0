//go:build !linux

package audit

import "time"

var begun = time.Now()

// threadTime is the time that has passed, which is more than any thread has used: there is no call for that here.
func threadTime() time.Duration { return time.Since(begun) }
