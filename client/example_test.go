package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"signalbox/client"
)

// An agent that writes a letter, and sends it if an operator says so.
func Example() {
	c, err := client.New("https://signalbox.example.com", os.Getenv("SIGNALBOX_KEY"), client.WithAgent("letter-writer"))
	if err != nil {
		log.Fatal(err)
	}
	err = c.Run(context.Background(), client.RunOptions{Summary: "Write a letter"},
		func(ctx context.Context, run *client.Run) error {
			letter, in, out := write(ctx)
			run.AddUsage("claude-sonnet-4-6", in, out)
			run.SetSummary("Wrote a letter of two pages to the landlord")
			if err := run.Approve(ctx, "Send it to the landlord", client.Text(letter)); err != nil {
				return err // rejected, or nobody could be asked: in both cases it is not sent
			}
			return send(ctx, letter)
		})
	if rejected, ok := errors.AsType[*client.Rejected](err); ok {
		fmt.Println("An operator says no:", rejected.Message)
	} else if err != nil {
		log.Fatal(err)
	}
}

func write(context.Context) (letter string, in, out int64) { return "Dear …", 1842, 614 }

func send(context.Context, string) error { return nil }

// One signal at the end of a run, with an approval before what comes next.
func ExampleClient_Gate() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(
			[]byte(`{"status":"rejected","gate_id":"gate_01jt","message":"Gate rejected by operator: not on a Sunday"}`),
		)
	}))
	defer server.Close()

	c, err := client.New(server.URL, "rs-amp-0123456789abcdef0123456789abcdef", client.WithAgent("resume-tailor"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // nobody answered: do not send
	defer cancel()
	err = c.Gate(ctx, client.Payload{
		RunID: client.NewRunID(), Summary: "Rewrote the resume", ProposedAction: "Send it to the applicant",
		Model: "claude-sonnet-4-6", InputTokens: 1842, OutputTokens: 614,
		Cost:      client.BuiltinPrices().Cost("claude-sonnet-4-6", 1842, 614),
		StartedAt: time.Now().Add(-8 * time.Second), CompletedAt: time.Now(),
	})
	fmt.Println(err)
	// Output: rejected: Gate rejected by operator: not on a Sunday
}
