package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/proxy"
	"signalbox/internal/roster"
)

// feedback turns the setting on for the agent of a node.
func (n *node) feedback() {
	n.T.Helper()
	a, err := n.Roster.Agent(n.T.Context(), "default", "coder")
	if err == nil {
		_, err = n.proxy.Configure(n.T.Context(), roster.Identity{}, a, proxy.NewSettings{Feedback: true})
	}
	if err != nil {
		n.T.Fatal(err)
	}
}

// results is what the model must hear of a rejection, in the form of each provider.
var results = map[string]string{
	"messages":  `"is_error":true`,
	"chat":      `"role":"tool"`,
	"responses": `"type":"function_call_output"`,
}

func TestTheModelHearsOfARejectionAndGoesOn(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply(gateBash)
		n.feedback()
		for _, c := range formCases {
			for _, stream := range []bool{false, true} {
				name := fmt.Sprintf("%s stream %t", c.name, stream)
				reply := func(tool string) string {
					if stream {
						return strings.Join(c.stream(tool, removeAll), "")
					}
					return strings.Replace(c.reply, "bash", tool, 1)
				}
				var heard []string
				n.provider.answers(func(w http.ResponseWriter, _ *http.Request) {
					_, body := n.provider.last()
					heard = append(heard, strings.Replace(string(body), `,"stream_options":{"include_usage":true}`, "", 1))
					w.Header().Set("Content-Type", map[bool]string{false: "application/json", true: "text/event-stream"}[stream])
					// The model tries the same again, and then something that nobody minds.
					_, _ = w.Write([]byte(reply(map[bool]string{true: "bash", false: "read"}[len(heard) < 3])))
				})
				ask := fmt.Sprintf(c.ask, stream)
				waiting := n.begin("POST", c.path, ask)
				first := n.gate()
				n.decide(first.ID, false, "Not today.")
				second := n.gate()
				n.decide(second.ID, false, "Still no.")
				got := <-waiting
				if got.status != 200 || got.body != reply("read") || first.ID == second.ID {
					t.Fatalf("%s: %+v", name, got)
				}
				if len(heard) != 3 || heard[0] != ask || !json.Valid([]byte(heard[2])) ||
					!strings.Contains(heard[1], "Not today.") || !strings.Contains(heard[1], results[c.name]) ||
					strings.Count(heard[2], results[c.name]) != 2 && c.name != "responses" ||
					!strings.Contains(heard[2], "Still no.") {
					t.Errorf("%s: the model has heard\n%s", name, strings.Join(heard, "\n"))
				}
				if strings.Contains(heard[1], "rm -r") != (c.name != "responses" || strings.Contains(ask, `"store":false`)) {
					t.Errorf("%s: its own words are not in %s", name, heard[1])
				}
			}
		}
		if got := len(n.Entries("proxy.told")); got != 4*len(formCases) {
			t.Errorf("%d on record", got)
		}
		n.WantClean()
	})
}

// What the model says after a rejection is judged like anything else, and it is not told for ever.
func TestAModelThatInsistsIsStopped(t *testing.T) {
	n := one(t)
	n.apply(gateBash)
	n.feedback()
	n.provider.json(formCases[0].reply)
	waiting := n.begin("POST", messagesPath, fmt.Sprintf(messageAsk, false))
	for range 6 {
		n.decide(n.gate().ID, false, "No.")
	}
	if got := <-waiting; got.status != 403 || n.provider.calls() != 6 {
		t.Errorf("%+v after %d calls", got, n.provider.calls())
	}
	// A rule that blocks is not asked to be kind, and a request that was rejected has no tool to answer for.
	n.apply("  - {name: no, on: [prompt], then: gate}\n")
	waiting = n.begin("POST", messagesPath, strings.Replace(fmt.Sprintf(messageAsk, false), "Clean", "Wipe", 1))
	n.decide(n.gate().ID, false, "No.")
	if got := <-waiting; got.status != 403 || n.provider.calls() != 6 {
		t.Errorf("%+v after %d calls", got, n.provider.calls())
	}
}
