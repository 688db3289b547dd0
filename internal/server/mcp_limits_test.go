package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/task"
	"signalbox/internal/testbed"
)

// TestToolsKeepTheLimitsOfTheirCalls does with tools what is refused over HTTP.
func TestToolsKeepTheLimitsOfTheirCalls(t *testing.T) {
	t.Parallel()
	b := startTools(t)
	b.want(202, request{call: "POST /amp/messages", token: b.keys["coordinator"], body: taskDispatch})
	b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
	b.keys["foreign"] = b.agentWith("executor", "other")
	says := func(role, want, tool, args string) {
		t.Helper()
		for _, overHTTP := range []bool{true, false} {
			if text := b.use(b.connect(role, overHTTP), true, tool, args); !strings.Contains(text, want) {
				t.Errorf("%s by %s: %s, want %q", tool, role, text, want)
			}
		}
	}
	says("foreign", "There is no task", "amp_context", `{"task_id":"T-2026-044"}`)
	says("executor", "AMP_E_", "amp_heartbeat", `{"task_id":"T-2026-999"}`)
	var refused struct{ Errors []task.ErrorRecord }
	b.ops(200, "GET /amp/errors?limit=1", "", &refused)
	if len(refused.Errors) != 1 || refused.Errors[0].Transport != task.OverMCP {
		t.Errorf("the error log says %+v", refused.Errors)
	}

	b.ops(200, "PATCH /ops/agents/executor-one", `{"suspended":true}`, nil)
	says("executor", "suspended", "amp_heartbeat", `{"task_id":"T-2026-044"}`)
	says("executor", `"error":"agent_suspended"`, "mail_inbox", `{}`)
	says("executor", `"error":"agent_suspended"`, "mail_send", `{"to":"reviewer-one","subject":"s","message":"m"}`)
	blocked := b.use(b.connect("executor", true), false, "request_approval",
		`{"run_id":"r","request_id":"1","summary":"s","proposed_action":"Send it"}`)
	if !strings.Contains(blocked, `"status":"rejected"`) || !strings.Contains(blocked, "suspended") {
		t.Errorf("a suspended agent asks: %s", blocked)
	}

	// The protocol's own limit of a minute. It fills up again meanwhile, and so the more the slower the machine is.
	s, bridge := b.connect("none", true), b.connect("none", false)
	for _, one := range []*sdk.ClientSession{s, bridge} {
		calls, refusal := 0, ""
		testbed.Until(t, "the limit of mail_inbox", func() bool {
			out, err := one.CallTool(t.Context(), &sdk.CallToolParams{Name: "mail_inbox", Arguments: json.RawMessage(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			calls, refusal = calls+1, out.Content[0].(*sdk.TextContent).Text
			return out.IsError
		})
		if one == s && calls <= 30 || !strings.Contains(refusal, "used up its 30 requests") {
			t.Errorf("call %d: %s", calls, refusal)
		}
	}
	b.use(s, false, "mail_ack", `{"ids":["msg_1_a"]}`) // which has another
	bridged := b.connect("reviewer", false)
	b.ops(200, "PATCH /ops/agents/reviewer-one", `{"rate_limit":1}`, nil)
	b.use(bridged, true, "mail_inbox", `{}`) // the request is one, and the tool another
	if text := b.use(bridged, true, "mail_inbox", `{}`); !strings.Contains(text, "used up its 1 requests") {
		t.Errorf("%s", text)
	}
}

// TestToolsThatWait has tools wait, and meanwhile does something else.
func TestToolsThatWait(t *testing.T) {
	t.Parallel()
	for name, overHTTP := range map[string]bool{"HTTP": true, "bridge": false} {
		testbed.Parallel(t, name, func(t *testing.T) {
			b := startTools(t)
			s := b.connect("executor", overHTTP)
			waits := func(ctx context.Context, s *sdk.ClientSession) <-chan string {
				came := make(chan string, 1)
				go func() {
					out, err := s.CallTool(ctx,
						&sdk.CallToolParams{Name: "amp_inbox", Arguments: json.RawMessage(`{"wait_seconds":55}`)})
					if err != nil {
						came <- "error: " + err.Error()
						return
					}
					came <- out.Content[0].(*sdk.TextContent).Text
				}()
				return came
			}
			began := time.Now()
			ctx, cancel := context.WithCancel(testbed.Context(t))
			cancelled := waits(ctx, s)
			names(t, s) // is answered beside it
			cancel()
			if text := testbed.Receive(t, "the call that is cancelled", cancelled); !strings.Contains(text, "cancel") {
				t.Errorf("a call that is cancelled: %s", text)
			}
			// Another agent: the executor may still be heard to say that it has cancelled.
			other := b.connect("reviewer", overHTTP)
			before := time.Now().Truncate(time.Microsecond)
			stopped := waits(testbed.Context(t), other)
			if overHTTP {
				b.hears("reviewer-one", before)
			}
			names(t, s)
			b.stop()
			if text := testbed.Receive(t, "the call that the stop ends", stopped); overHTTP &&
				!strings.Contains(text, `"pending":true`) {
				t.Errorf("a call that a stop ends: %s", text)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestABridgeOutlivesItsServer stops the server behind a bridge, and starts it again.
func TestABridgeOutlivesItsServer(t *testing.T) {
	t.Parallel()
	flags := map[string]string{"listen": testbed.FreeAddress(t), "data": t.TempDir()}
	b := &toolbox{start(t, "", flags), map[string]string{}}
	b.keys["executor"] = b.agentWith("executor", "default")
	s := b.connect("executor", false)
	b.use(s, false, "amp_inbox", `{}`)
	b.stop()
	if text := b.use(s, true, "amp_inbox", `{}`); !strings.Contains(text,
		"The call failed: Signalbox at "+b.url+" cannot be reached") {
		t.Errorf("%s", text)
	}
	if _, err := s.ListTools(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("a list of tools: %v", err)
	}
	b.box = start(t, "", flags)
	b.use(s, false, "amp_inbox", `{}`)
}
