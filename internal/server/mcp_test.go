package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/mcp"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// toolbox is a server with an agent for each role.
type toolbox struct {
	*box
	keys map[string]string
}

func startTools(t *testing.T) *toolbox {
	t.Helper()
	return startToolsWith(t, nil)
}

// startToolsWith is startTools with some of the configuration.
func startToolsWith(t *testing.T, flags map[string]string) *toolbox {
	t.Helper()
	b := &toolbox{start(t, "", flags), map[string]string{}}
	for _, role := range []string{"coordinator", "executor", "reviewer", "none"} {
		b.keys[role] = b.agentWith(role, "default")
	}
	return b
}

// bearer adds a key to every request.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// connect is a session of the official client, over HTTP or over a pipe.
func (b *toolbox) connect(role string, overHTTP bool) *sdk.ClientSession {
	b.t.Helper()
	return b.connectWith(role, overHTTP, nil)
}

// connectWith is connect with options of the client.
func (b *toolbox) connectWith(role string, overHTTP bool, o *sdk.ClientOptions) *sdk.ClientSession {
	b.t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o)
	var transport sdk.Transport
	if overHTTP {
		transport = &sdk.StreamableClientTransport{
			Endpoint:   b.url + "/mcp",
			HTTPClient: &http.Client{Transport: bearer{b.keys[role]}}, DisableStandaloneSSE: true,
		}
	} else {
		theirs, out := io.Pipe()
		in, ours := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- mcp.Bridge(b.t.Context(), b.url, b.keys[role], in, out) }()
		b.t.Cleanup(func() {
			if err := <-ended; err != nil {
				b.t.Errorf("the bridge broke: %v", err)
			}
		})
		transport = &sdk.IOTransport{Reader: theirs, Writer: ours}
	}
	session, err := client.Connect(b.t.Context(), transport, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = session.Close() })
	return session
}

// use calls a tool, and returns what it says.
func (b *toolbox) use(s *sdk.ClientSession, fails bool, tool, args string) string {
	b.t.Helper()
	out, err := s.CallTool(b.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		b.t.Fatalf("%s: %v", tool, err)
	}
	text := out.Content[0].(*sdk.TextContent).Text
	if out.IsError != fails {
		b.t.Fatalf("%s: an error is %t, want %t: %s", tool, out.IsError, fails, text)
	}
	return text
}

func names(t *testing.T, s *sdk.ClientSession) (list []string) {
	t.Helper()
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		list = append(list, tool.Name)
	}
	slices.Sort(list)
	return list
}

// The tools that every agent has, and those that every role in tasks has beside them.
var (
	everybodysTools = []string{"ask_operator", "mail_ack", "mail_inbox", "mail_send", "request_approval"}
	partysTools     = []string{
		"amp_ack", "amp_context", "amp_escalate", "amp_heartbeat", "amp_inbox", "amp_next", "amp_tasks", "amp_wait",
	}
)

func TestARoleHasItsTools(t *testing.T) {
	b := startTools(t)
	for role, own := range map[string][]string{
		"coordinator": {"amp_dispatch", "amp_review_request"},
		"executor":    {"amp_result"}, "reviewer": {"amp_verdict"},
	} {
		want := slices.Sorted(slices.Values(slices.Concat(everybodysTools, partysTools, own)))
		for _, overHTTP := range []bool{true, false} {
			if got := names(t, b.connect(role, overHTTP)); !slices.Equal(got, want) {
				t.Errorf("%s has %v, want %v", role, got, want)
			}
		}
	}
	if got := names(t, b.connect("none", true)); !slices.Equal(got, everybodysTools) {
		t.Errorf("an agent without a role has %v", got)
	}
	b.keys["stranger"] = "rs-amp-" + strings.Repeat("0", 32)
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	if _, err := client.Connect(t.Context(),
		&sdk.StreamableClientTransport{
			Endpoint:   b.url + "/mcp",
			HTTPClient: &http.Client{Transport: bearer{b.keys["stranger"]}},
		}, nil); err == nil {
		t.Error("a stranger is served")
	}
}

func TestATaskThroughTools(t *testing.T) {
	b := startTools(t)
	coordinator, executor, reviewer := b.connect("coordinator", true), b.connect("executor", false), b.connect("reviewer",
		true)
	wrong := b.use(coordinator, true, "amp_dispatch", `{"task_id":"T-2026-044","description":"x"}`)
	for _, want := range []string{"AMP_E_MISSING_FIELD", `"argument":"branch"`, "feature/timer-v2"} {
		if !strings.Contains(wrong, want) {
			t.Errorf("a model cannot repair it without %s: %s", want, wrong)
		}
	}
	b.use(coordinator, false, "amp_dispatch",
		`{"task_id":"T-2026-044","description":"Rework the timer","repo":"/srv/repos/app","branch":"feature/timer",`+
			`"risk_level":"medium",
"subtasks":[{"subtask_id":"T-2026-044-S1","description":"Do it","estimated_lines":10,`+
			`"x_size":12345678901234567890}],"acceptance_criteria":["All tests pass"]}`)
	read := func(s *sdk.ClientSession) (id string) {
		t.Helper()
		text := b.use(s, false, "amp_inbox", `{"wait_seconds":5}`)
		var box struct {
			Messages []struct {
				MsgID     string `json:"msg_id"`
				Untrusted struct{ Document amp.Message }
			}
		}
		if err := json.Unmarshal([]byte(text), &box); err != nil || len(box.Messages) != 1 {
			t.Fatalf("%s %v", text, err)
		}
		m := box.Messages[0]
		if doc := m.Untrusted.Document; doc.Type == amp.TypeDispatch &&
			!strings.Contains(string(doc.Payload), `"x_size":12345678901234567890`) {
			t.Errorf("a number has lost its digits: %s", doc.Payload)
		}
		return m.MsgID
	}
	b.use(executor, false, "amp_ack", `{"msg_id":"`+read(executor)+`"}`)
	b.use(executor, true, "amp_ack", `{}`)
	b.use(executor, true, "amp_heartbeat", `{"task_id":"T-2026-044","colour":"red"}`)
	if text := b.use(executor, true, "amp_heartbeat",
		`{"task_id":"T-2026-044","task_id":"T-2026-045"}`); !strings.Contains(text, "Duplicate") {
		t.Errorf("a name that is repeated: %s", text)
	}
	b.use(executor, false, "amp_heartbeat", `{"task_id":"T-2026-044"}`)
	b.use(executor, false, "amp_result",
		`{"task_id":"T-2026-044","subtask_id":"T-2026-044-S1","completion_status":"complete",`+
			`"diff_summary":{"files_changed":["a.go"],"lines_added":1,"lines_removed":0},
"self_assessment":{"criteria_met":[true],"notes":["ran"]},"work_log":[]}`)
	read(coordinator)
	whole := b.use(coordinator, false, "amp_context", `{"task_id":"T-2026-044"}`)
	var shown struct {
		Untrusted struct{ Task amp.Record }
	}
	if err := json.Unmarshal([]byte(whole), &shown); err != nil || len(shown.Untrusted.Task.Messages) != 2 {
		t.Fatalf("%s %v", whole, err)
	}
	b.use(coordinator, false, "amp_review_request", `{"task_id":"T-2026-044","diff_url":"https://git.example.com/x"}`)
	b.use(reviewer, false, "amp_escalate", `{"task_id":"T-2026-044","severity":"info","description":"Odd"}`)
	b.use(reviewer, false, "amp_verdict",
		`{"task_id":"T-2026-044","decision":"approved","confidence":0.95,`+
			`"criteria_results":[{"criterion":"All tests pass","passed":true,"evidence":"CI"}]}`)
	if text := b.use(coordinator, false, "amp_ack", `{"msg_id":"`+read(coordinator)+`"}`); !strings.Contains(text,
		`"task_status":"completed"`) {
		t.Errorf("%s", text)
	}
}

// TestEachProcessOfAnAgentTakesOtherWork: ten processes of one agent, which are woken by the same dispatches, take each
// once. What one of them says of work that it has lost is refused.
func TestEachProcessOfAnAgentTakesOtherWork(t *testing.T) {
	b := startTools(t)
	coordinator := b.connect("coordinator", true)
	var sessions []*sdk.ClientSession
	for range 10 {
		sessions = append(sessions, b.connect("executor", true))
	}
	takes := make(chan string, len(sessions))
	for _, s := range sessions {
		go func() {
			wait := json.RawMessage(`{"wait_seconds":20}`)
			out, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "amp_next", Arguments: wait})
			if err != nil {
				takes <- err.Error()
				return
			}
			takes <- out.Content[0].(*sdk.TextContent).Text
		}()
	}
	const tasks = 5
	for i := range tasks {
		id := fmt.Sprintf("T-2026-%03d", 100+i)
		b.use(coordinator, false, "amp_dispatch", `{"task_id":"`+id+`","description":"Rework the timer",`+
			`"repo":"/srv/repos/app","branch":"feature/timer","risk_level":"low","subtasks":[{"description":"Do it","estimated_lines":10}],`+
			`"acceptance_criteria":["All tests pass"]}`)
	}
	taken := map[string]int{}
	for range sessions {
		var got struct {
			Taken struct {
				TaskID     string `json:"task_id"`
				Generation int64
			}
		}
		text := testbed.Receive(t, "what was taken", takes)
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got.Taken.TaskID != "" {
			taken[got.Taken.TaskID]++
		}
	}
	for id, n := range taken {
		if n != 1 {
			t.Errorf("%s was taken %d times", id, n)
		}
	}
	// Whoever was too late for all of them may ask again.
	for len(taken) < tasks {
		var got struct {
			Taken struct {
				TaskID string `json:"task_id"`
			}
		}
		text := b.use(sessions[0], false, "amp_next", `{"wait_seconds":0}`)
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Taken.TaskID == "" || taken[got.Taken.TaskID] > 0 {
			t.Fatalf("%s %v", text, err)
		}
		taken[got.Taken.TaskID]++
	}
	const result = `{"task_id":"T-2026-100","completion_status":"failed","blockers":["The tests do not run"],` +
		`"diff_summary":{"files_changed":[],"lines_added":0,"lines_removed":0},"self_assessment":{"criteria_met":["no"]},` +
		`"generation":%d}`
	text := b.use(sessions[1], true, "amp_result", fmt.Sprintf(result, 7))
	if !strings.Contains(text, "lease of generation 7") {
		t.Error(text)
	}
	b.use(sessions[1], false, "amp_result", fmt.Sprintf(result, 1))
}

func TestAnApprovalThroughATool(t *testing.T) {
	b := startTools(t)
	s := b.connect("none", true)
	came := make(chan string, 1)
	go func() {
		out, err := s.CallTool(context.Background(),
			&sdk.CallToolParams{
				Name:      "request_approval",
				Arguments: json.RawMessage(`{"run_id":"r","request_id":"1","summary":"It is done","proposed_action":"Send it"}`),
			})
		if err != nil {
			came <- err.Error()
			return
		}
		came <- out.Content[0].(*sdk.TextContent).Text
	}()
	var page struct{ Gates []struct{ ID string } }
	for len(page.Gates) == 0 {
		b.ops(200, "GET /ops/gates?status=pending", "", &page)
		select {
		case text := <-came:
			t.Fatalf("answered before anybody decided: %s", text)
		default:
		}
	}
	b.ops(200, "POST /ops/gates/"+page.Gates[0].ID+"/approve", `{"note":"Good"}`, nil)
	if text := <-came; !strings.Contains(text, `"status":"approved"`) {
		t.Errorf("%s", text)
	}
}

func TestMailThroughTools(t *testing.T) {
	b := startTools(t)
	from, to := b.connect("none", true), b.connect("reviewer", false)
	if text := b.use(from, true, "mail_send",
		`{"to":"nobody","subject":"Hello","message":"How are you?"}`); !strings.Contains(text,
		"nobody@default.signalbox.local") {
		t.Errorf("%s", text)
	}
	b.use(from, true, "mail_send", `{"to":"reviewer-one","subject":"Hello"}`)
	const hello = `{"to":"reviewer-one","subject":"Hello","message":"How are you?","type":"notification",` +
		`"idempotency_key":"1"}`
	first := b.use(from, false, "mail_send", hello)
	if again := b.use(from, false, "mail_send", hello); !strings.Contains(first, `"status":"queued"`) || again != first {
		t.Errorf("%s, then %s", first, again)
	}
	var box struct {
		Messages []struct{ ID, From, Trust, Message string }
	}
	read := func(want int) {
		t.Helper()
		if err := json.Unmarshal([]byte(b.use(to, false, "mail_inbox", `{"wait_seconds":0}`)), &box); err != nil ||
			len(box.Messages) != want {
			t.Fatalf("%+v %v", box, err)
		}
	}
	read(1)
	if m := box.Messages[0]; m.From != "none-one@default.signalbox.local" || m.Trust != "untrusted" ||
		!strings.HasPrefix(m.Message, "<external-content ") || !strings.Contains(m.Message, "Type: notification") ||
		!strings.Contains(m.Message, "\n\nHow are you?\n</external-content>") {
		t.Errorf("%+v", m)
	}
	b.use(to, false, "mail_ack", `{"ids":["`+box.Messages[0].ID+`"]}`)
	b.use(to, true, "mail_ack", `{}`)
	read(0)
}

// npmProgram is a file of a package that scripts/test-tools has installed.
func npmProgram(t *testing.T, name string) string {
	t.Helper()
	return testbed.Installed(t, "signalbox-test-tools-locked", "node_modules", name)
}
