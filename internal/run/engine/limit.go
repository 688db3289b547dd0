package engine

import (
	"fmt"
	"strings"
	"time"
)

// ParseLimit reads a limit of time as people write it. The one for the start is never absent: a CLI that waits for
// somebody to sign in would wait for ever.
func ParseLimit(name, text string) (time.Duration, error) {
	if text == "0" && !strings.HasPrefix(name, "start") {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	switch {
	case err == nil && d > 0 && d <= maxLimit:
		return d, nil
	case strings.HasPrefix(name, "start"):
		return 0, fmt.Errorf("should be a length of time such as 90s")
	}
	return 0, fmt.Errorf("should be a length of time such as 30m, or 0 for no limit")
}

// maxLimit is a year.
const maxLimit = 366 * 24 * time.Hour
