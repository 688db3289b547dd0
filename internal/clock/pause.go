package clock

import (
	"context"
	"time"

	"signalbox/internal/ledger"
)

// Pause waits for so long, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) { ledger.Pause(ctx, nil, d) }
