package ahp_test

import (
	"strings"
	"testing"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/wire/wiretest"
)

// The texts stand for the decision, and for the whole message around it.
func TestAnAnswerIsReadAsEveryReaderOfOursReadsIt(t *testing.T) {
	decision := wiretest.Words{Name: "decision", Yes: `"allow"`, No: `"block"`, Rest: `,"reason":"r"`}
	for _, a := range wiretest.Answers(decision) {
		a.Text = `{"jsonrpc":"2.0","id":"<id>","result":` + a.Text + `}`
		checkAnswer(t, "decision: ", a)
	}
	message := wiretest.Words{
		Name: "result", Yes: `{"decision":"allow"}`, No: `{"decision":"block","reason":"r"}`,
		Rest: `,"jsonrpc":"2.0","id":"<id>"`,
	}
	for _, a := range wiretest.Answers(message) {
		checkAnswer(t, "message: ", a)
	}
}

func checkAnswer(t *testing.T, about string, a wiretest.Answer) {
	t.Helper()
	for transport, serve := range map[string]func(*says, *testing.T) string{
		"stream": (*says).onStream,
		"http":   (*says).onHTTP,
	} {
		if transport == "stream" && strings.Contains(a.Text, "\n") {
			continue // there a line is a message
		}
		t.Run(about+a.Name+" "+transport, func(t *testing.T) {
			t.Parallel()
			c := open(t, serve(&says{text: a.Text, handshake: goodHandshake, leaves: true}, t), 10*time.Second)
			if _, err := c.Handshake(t.Context()); err != nil {
				t.Fatal(err)
			}
			d, err := c.Decide(t.Context(), act)
			if d.Allowed() != a.Good || (err == nil) != a.Good && d.Word != "block" {
				t.Errorf("%q: %+v %v", a.Text, d, err)
			}
			if all, err := c.Batch(t.Context(), []ahp.Event{act}); err == nil || all[0].Allowed() {
				t.Errorf("a decision is taken for a list of them: %+v", all)
			}
		})
	}
}
