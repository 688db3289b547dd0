package deliver_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package when a goroutine outlives its test. The tests that kill
// processes start this program again, as one of those.
func TestMain(m *testing.M) {
	if text := os.Getenv(ordersEnv); text != "" {
		os.Exit(obey(text))
	}
	_ = flag.Set("rapid.checks", "3") // each runs on two databases for a second or two; more with -rapid.checks
	goleak.VerifyTestMain(m)
}
