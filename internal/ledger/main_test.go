package ledger_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package when a goroutine outlives its test.
func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "12") // each runs on two databases; more with -rapid.checks
	goleak.VerifyTestMain(m)
}
