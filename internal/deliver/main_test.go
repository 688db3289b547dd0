package deliver_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package when a goroutine outlives its test.
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "3") // each runs on two databases for a second or two; more with -rapid.checks
	goleak.VerifyTestMain(m)
}
