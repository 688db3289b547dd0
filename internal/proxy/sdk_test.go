package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/price"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// seen is what the user of an SDK sees of a call.
type seen struct {
	ID, Scenario, API, SDK string
	Text                   string
	Tools                  []string
	Ended                  *bool
	Events                 *int
	Gaps                   int
	Gate                   string
	Error, Message, Kind   string
	Status                 int
	Again                  *struct {
		Tools []string
		Error string
	}
}

// attempt is how long the first node holds a call that was sent nothing. Its SDK sends it again.
const attempt = 3 * time.Second

// matrix is what the SDKs meet: a node that soon asks them to send a call again, one that does not, a
// provider that answers by the name of the scenario, and an operator who decides by it.
type matrix struct {
	t            *testing.T
	node, silent *node
	elsewhere    string // where nobody should go
	keys         string
	mu           sync.Mutex
	asked, sent  map[string]int  // calls that reached the provider, and us
	again        map[string]bool // calls that the user has sent once more
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{t: t, asked: map[string]int{}, sent: map[string]int{}, again: map[string]bool{}}
	m.elsewhere = testbed.ServeHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s: the redirect was followed", r.Header.Get("X-Scenario"))
	}))
	// At the first node a call is answered "ask again" before a late decision, at the second it is not.
	m.node = start(t, storetest.SQLite(t), func(o *proxy.Options) { o.Beat, o.Attempt = 100*time.Millisecond, attempt })
	m.silent = start(t, storetest.SQLite(t))
	keys := map[string]string{"plain": m.node.key, "silent": m.silent.key}
	for name, s := range map[string]proxy.NewSettings{"soft": {SoftReject: true}, "short": {HoldSeconds: 1}} {
		a, issued, err := m.node.Roster.AddAgent(t.Context(), roster.Identity{Role: roster.Admin},
			roster.NewAgent{Name: name, Workspace: "default"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.node.proxy.Configure(t.Context(), roster.Identity{}, a, s); err != nil {
			t.Fatal(err)
		}
		keys[name] = issued[0].Secret
	}
	text, _ := json.Marshal(keys)
	m.keys = string(text)
	for _, n := range []*node{m.node, m.silent} {
		n.apply(
			"  - {name: soon, on: [tool_call], when: 'event.text.contains(\"k-expire\")', then: gate, gate: {expires: 1s}}\n" +
				"  - {name: over, on: [tool_call], when: 'event.text.contains(\"-expire\")', then: gate, gate: {expires: 4s}}\n" +
				gateBash + "  - {name: later, on: [prompt], when: 'event.text.contains(\"/deferred\")', then: defer, " +
				"retry_after: 1s}\n",
		)
		n.provider.answers(m.answer)
		handler := n.web.Config.Handler
		n.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.count(m.sent, r)
			handler.ServeHTTP(w, r)
		})
		go m.operate(n)
	}
	return m
}

func (m *matrix) count(in map[string]int, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in[r.Header.Get("X-Scenario")]++
	if r.Header.Get("X-Again") != "" {
		m.again[r.Header.Get("X-Scenario")] = true
	}
}

// answer is the provider.
func (m *matrix) answer(w http.ResponseWriter, r *http.Request) {
	m.count(m.asked, r)
	body, _ := io.ReadAll(r.Body)
	id := r.Header.Get("X-Scenario")
	c := formCases[0]
	for _, one := range formCases {
		if strings.HasSuffix(one.path, r.URL.Path) &&
			strings.Contains(one.path, "openai") == !strings.Contains(r.URL.Path, "messages") {
			c = one
		}
	}
	tool := "bash"
	if strings.Contains(id, "pass") {
		tool = "read"
	}
	switch {
	case strings.HasSuffix(id, "/redirected"):
		if r.Header.Get("X-Api-Key")+r.Header.Get("Authorization") == "" {
			m.t.Errorf("%s: the provider got no key", id)
		}
		http.Redirect(w, r, m.elsewhere+r.URL.Path, http.StatusTemporaryRedirect)
	case strings.HasSuffix(id, "/overloaded"):
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After-Ms", "20")
		w.WriteHeader(529)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`)
	case strings.Contains(id, "stream") || strings.Contains(id, "helper"):
		w.Header().Set("Content-Type", "text/event-stream")
		list := asOpenAI(c.stream(tool, fmt.Sprintf(`{"command":%q}`, id)), body)
		if strings.HasSuffix(id, "/broken-stream") {
			list = list[:2]
		}
		for _, piece := range list {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, strings.NewReplacer("bash", tool, "rm -r build", id).Replace(c.reply))
	}
}

// operate decides by the name of the scenario, and by how often its call has come.
func (m *matrix) operate(n *node) {
	for m.t.Context().Err() == nil {
		all, _, err := n.Gates.List(context.Background(), gate.Filter{Status: gate.Pending}, nil, 100)
		if err != nil {
			return
		}
		for _, g := range all {
			id := g.ProposedAction[strings.LastIndex(g.ProposedAction, " ")+1:]
			m.mu.Lock()
			sent, again := m.sent[id], m.again[id]
			m.mu.Unlock()
			switch {
			// Late is when the SDK has sent the call again, and the last when its user has, however often the SDK did.
			case strings.HasSuffix(id, "/held-approve") && sent < 2, strings.HasSuffix(id, "/late-reject") && sent < 2,
				strings.HasSuffix(id, "/silent-late") && !again:
			case strings.HasSuffix(id, "-approve"), strings.HasSuffix(id, "-late"):
				_, _ = n.Gates.Vote(context.Background(), n.operator, g.ID, gate.Ballot{Approve: true})
			case strings.HasSuffix(id, "-reject"):
				_, _ = n.Gates.Vote(context.Background(), n.operator, g.ID, gate.Ballot{Note: "Not today."})
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-m.t.Context().Done():
		}
	}
}

// runSDKs runs the programs with the SDKs at the same time, and reads what their users saw.
func runSDKs(t *testing.T, programs map[string][]string, args ...string) map[string][]seen {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	results := map[string][]seen{}
	for sdk, program := range programs {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*testbed.Patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program[0], slices.Concat(program[1:], []string{sdk}, args)...)
			cmd.Dir = filepath.Join("testdata", "sdk", "node")
			var problems bytes.Buffer
			cmd.Stderr = &problems
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%s: %v\n%s", sdk, err, problems.String())
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range bytes.Lines(out) {
				var s seen
				if err := json.Unmarshal(line, &s); err != nil {
					t.Errorf("%s: %v", line, err)
				}
				results[sdk] = append(results[sdk], s)
			}
		})
	}
	running.Wait()
	return results
}

// wanted is what a scenario should come to.
type wanted struct {
	text    string // in what was said, or in the error
	failed  bool
	status  int
	kind    string // of the error, as a client tells it from others
	tool    string
	asked   int // how often the provider was
	sent    int // how often we were; 0 when it does not matter
	unended bool
	again   bool
}

// scenarios are the rows of the matrix, as far as they are what the proxy does.
var scenarios = map[string]wanted{
	"pass":                 {tool: "read", asked: 1, sent: 1},
	"pass-stream":          {text: "I will look.", tool: "read", asked: 1, sent: 1},
	"helper-pass":          {text: "I will look.", tool: "read", asked: 1, sent: 1},
	"held-approve":         {tool: "bash", asked: 1, sent: several},
	"held-stream-approve":  {text: "I will look.", tool: "bash", asked: 1, sent: 1},
	"quick-reject":         {kind: "permission_error", failed: true, status: 403, asked: 1, sent: 1},
	"late-reject":          {kind: "permission_error", failed: true, status: 403, asked: 1, sent: several},
	"stream-reject":        {kind: "permission_error", text: "Not today.", failed: true, asked: 1, sent: 1},
	"quick-expire":         {kind: "timeout_error", failed: true, status: 504, asked: 1, sent: 1},
	"late-expire":          {kind: "timeout_error", failed: true, status: 504, asked: 1, sent: several},
	"stream-expire":        {kind: "timeout_error", failed: true, asked: 1, sent: 1},
	"soft-reject":          {text: "Not today.", asked: 1},
	"soft-stream-reject":   {text: "Not today.", asked: 1, sent: 1},
	"pending-never":        {kind: "overloaded_error", failed: true, status: 503, asked: 1, sent: 3},
	"pending-stream-never": {kind: "overloaded_error", failed: true, asked: 1, sent: 1},
	"async-never":          {asked: 1, sent: 1},
	"async-stream-never":   {asked: 1, sent: 1, unended: true},
	"silent-late":          {failed: true, asked: 1, sent: several, again: true},
	"deferred":             {failed: true, status: 429, asked: 0, sent: 2},
	"overloaded":           {failed: true, status: 529, asked: 2, sent: 2},
	"redirected":           {failed: true, status: 502, asked: 1, sent: 1},
	"broken-stream":        {failed: true, asked: 1, sent: 1},
}

// several is more than one.
const several = -1

func (m *matrix) check(s seen, want wanted) {
	m.mu.Lock()
	asked, sent := m.asked[s.ID], m.sent[s.ID]
	m.mu.Unlock()
	// SDKs that join the tool's name to its arguments.
	tools := strings.Join(s.Tools, " ")
	switch {
	case want.failed != (s.Error != ""):
	case s.Kind != want.kind && want.kind != "":
	case want.status != 0 && s.Status != want.status:
	case !strings.Contains(s.Text+s.Message, want.text):
	case want.tool == "" && tools != "" ||
		want.tool != "" && (len(s.Tools) != 1 || !strings.HasPrefix(tools, want.tool+" ") || !strings.Contains(tools, s.ID)):
	case asked != want.asked || want.sent > 0 && sent != want.sent || want.sent == several && sent < 2:
	case s.Ended != nil && *s.Ended == want.unended && !want.failed:
	case s.Gaps != 0:
	case want.again && (s.Again == nil || len(s.Again.Tools) != 1 || s.Again.Error != ""):
	default:
		return
	}
	m.t.Errorf("%s: asked %d, sent %d\ngot %+v %+v\nwant %+v", s.ID, asked, sent, s, s.Again, want)
}

// sdkPrograms are the programs that use the SDKs which are installed.
func sdkPrograms(t *testing.T) map[string][]string {
	t.Helper()
	programs := map[string][]string{}
	missing := func(what, path string) bool {
		if _, err := os.Stat(path); err == nil {
			return false
		}
		if os.Getenv("CI") != "" {
			t.Errorf("%s are not installed; scripts/test-tools does it", what)
		} else {
			t.Logf("%s are not installed; scripts/test-tools does it", what)
		}
		return true
	}
	if !missing("the SDKs from npm", "testdata/sdk/node/node_modules/.installed") {
		for _, sdk := range []string{"anthropic-0", "anthropic-1", "openai-6", "openai-7"} {
			programs[sdk] = []string{"node", "matrix.mjs"}
		}
	}
	if !missing("the Go SDKs", "testdata/sdk/go/matrix") {
		for _, sdk := range []string{"anthropic-go-1", "anthropic-go-2", "openai-go-3"} {
			programs[sdk] = []string{"../go/matrix"}
		}
	}
	python := testbed.Cache(t, "signalbox-test-python-locked")
	if _, err := os.Stat(filepath.Join(python, "installed")); err != nil { // Debian's own Python has no venv
		t.Log("the SDKs for Python are not installed; scripts/test-tools does it where Python has venv")
	} else {
		for _, sdk := range []string{"anthropic-py", "openai-py"} {
			programs[sdk] = []string{filepath.Join(python, "bin", "python"), "../python/matrix.py"}
		}
	}
	if len(programs) == 0 {
		t.Skip("no SDK is installed")
	}
	return programs
}

func TestTheRealSDKsSeeWhatTheyShould(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes ten seconds")
	}
	t.Parallel()
	programs := sdkPrograms(t)
	m := newMatrix(t)
	results := runSDKs(t, programs, m.node.web.URL, m.silent.web.URL, m.keys)
	for sdk := range programs {
		all := results[sdk]
		if len(all) < 14 {
			t.Errorf("%s: only %d scenarios", sdk, len(all))
		}
		for _, s := range all {
			w, known := scenarios[s.Scenario]
			if !known {
				t.Errorf("%+v", s)
				continue
			}
			m.check(s, w)
		}
	}
}

// front is the address of a server that can be restarted behind it.
type front struct {
	URL  string
	mu   sync.Mutex
	node *node // nil while there is none
	stop context.CancelFunc
	ctx  context.Context
}

// serve makes a node the one behind the address.
func (f *front) serve(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.node = n
	f.ctx, f.stop = context.WithCancel(context.Background())
}

// ServeHTTP hands a call to the node. Without one, the connection is closed as a port without a server
// closes it.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	n, ctx := f.node, f.ctx
	f.mu.Unlock()
	if n == nil {
		panic(http.ErrAbortHandler)
	}
	n.web.Config.Handler.ServeHTTP(w, r.WithContext(wire.WithStop(r.Context(), ctx)))
}

// A server that is stopped while people decide, and started again, has asked the provider once and
// gives what was approved to those that had nothing yet. A stream that had begun ends with an error.
func TestCallsOfTheRealSDKsOutliveARestart(t *testing.T) {
	t.Parallel()
	programs := sdkPrograms(t)
	address := t.TempDir() + "/a.db"
	n := start(t, address)
	n.apply(gateBash)
	m := &matrix{t: t, asked: map[string]int{}, sent: map[string]int{}, again: map[string]bool{}}
	n.provider.answers(m.answer)
	f := &front{}
	f.URL = testbed.ServeHTTP(t, f)
	f.serve(n)
	keys, _ := json.Marshal(map[string]string{"plain": n.key})
	done := make(chan map[string][]seen, 1)
	go func() { done <- runSDKs(t, programs, f.URL, f.URL, string(keys), "restart") }()

	calls := 2 * len(programs) // one whole and one as a stream
	for sdk := range programs {
		if strings.HasPrefix(sdk, "openai-") && programs[sdk][0] == "node" {
			calls += 2 // of the other API
		}
	}
	waiting := func(n *node) (all []gate.Gate) {
		all, _, err := n.Gates.List(context.Background(), gate.Filter{Status: gate.Pending}, nil, 100)
		if err != nil {
			t.Error(err)
		}
		return all
	}
	testbed.Until(t, "all calls to be held", func() bool { return len(waiting(n)) == calls })
	f.mu.Lock()
	f.node = nil
	f.mu.Unlock()
	f.stop()
	testbed.Until(t, "the calls to end", func() bool { return n.serving.Load() == 0 })
	n.stop()
	n.DB.Close()
	again := restart(t, address, n.key, n.operator)
	again.provider.answers(m.answer)
	f.serve(again)
	for _, g := range waiting(again) {
		again.decide(g.ID, true, "")
	}
	for sdk, all := range <-done {
		for _, s := range all {
			want := wanted{tool: "bash", asked: 1}
			if s.Scenario == "restart-stream-approve" {
				want = wanted{kind: "overloaded_error", failed: true, asked: 1}
			}
			m.check(s, want)
		}
		if len(all) == 0 {
			t.Errorf("%s has seen nothing", sdk)
		}
	}
}

// counting is a provider that counts what it says each call took: other numbers for every call, with tokens from a
// cache, and for Anthropic written to one for five minutes and for an hour.
type counting struct {
	mu    sync.Mutex
	calls int
	by    map[string]*price.Usage // by model
}

// answer answers in the form that is asked, whole or as a stream.
func (c *counting) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.calls++
	n := int64(c.calls)
	form, model := formCases[0], "claude-sonnet-4-6"
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		form, model = formCases[1], "gpt-4o"
	case strings.HasSuffix(r.URL.Path, "/responses"):
		form, model = formCases[2], "gpt-4o"
	}
	u := price.Usage{Input: 1000 + 7*n, Output: 100 + 3*n, CacheRead: 500 + 11*n}
	details := fmt.Sprintf(`_tokens_details":{"cached_tokens":%d}`, u.CacheRead)
	all := strconv.FormatInt(u.Input+u.CacheRead, 10)
	rename := strings.NewReplacer(
		`"prompt_tokens":100`, `"prompt_tokens":`+all, `"completion_tokens":40}`, `"completion_tokens":`+strconv.FormatInt(u.Output, 10)+`,"prompt`+details+`}`,
		`"completion_tokens":40,`, `"completion_tokens":`+strconv.FormatInt(u.Output, 10)+`,`, `"total_tokens":140,`, "", `"cached_tokens":60`,
		fmt.Sprintf(`"cached_tokens":%d`, u.CacheRead), `"output_tokens":40}`, `"output_tokens":`+strconv.FormatInt(u.Output, 10)+`,"input`+details+`}`,
		`"output_tokens":40,`, `"output_tokens":`+strconv.FormatInt(u.Output, 10)+`,`, `"input_tokens":100`, `"input_tokens":`+all,
	)
	if model == "claude-sonnet-4-6" {
		u.CacheWrite, u.CacheWrite1h = 10+n, 20+n
		rename = strings.NewReplacer(`"input_tokens":100`, fmt.Sprintf(`"input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,`+
			`"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d}`, u.Input, u.CacheRead, u.CacheWrite+u.CacheWrite1h,
			u.CacheWrite, u.CacheWrite1h), `"output_tokens":40`, fmt.Sprintf(`"output_tokens":%d`, u.Output))
	}
	if c.by[model] == nil {
		c.by[model] = &price.Usage{}
	}
	c.by[model].Add(u)
	c.mu.Unlock()
	if strings.Contains(r.Header.Get("X-Scenario"), "stream") {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range asOpenAI(form.stream("read", `{"path":"a"}`), body) {
			_, _ = io.WriteString(w, rename.Replace(piece))
			_ = http.NewResponseController(w).Flush()
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, rename.Replace(strings.ReplaceAll(form.reply, "bash", "read")))
}

// What is on record of the calls of the real SDKs is what the provider counted, token for token, and costs what the
// providers' lists say, worked out by hand: dollars for a million tokens.
func TestTheCallsOfTheRealSDKsAreCountedToTheToken(t *testing.T) {
	t.Parallel()
	programs := sdkPrograms(t)
	n := start(t, storetest.SQLite(t))
	c := &counting{by: map[string]*price.Usage{}}
	n.apply(gateBash)
	n.provider.answers(c.answer)
	keys, _ := json.Marshal(map[string]string{"plain": n.key})
	for sdk, all := range runSDKs(t, programs, n.web.URL, n.web.URL, string(keys), "pass") {
		for _, s := range all {
			if s.Error != "" || len(s.Tools) != 1 {
				t.Errorf("%s: %+v", sdk, s)
			}
		}
		if len(all) < 2 {
			t.Errorf("%s has made %d calls", sdk, len(all))
		}
	}
	n.called(c.calls)
	recorded, cost := map[string]*price.Usage{}, map[string]int64{}
	for _, one := range n.of(n.agent.ID) {
		if recorded[one.Model] == nil {
			recorded[one.Model] = &price.Usage{}
		}
		recorded[one.Model].Add(one.Usage)
		cost[one.Model] += one.Nanos
	}
	byHand := map[string]func(u *price.Usage) float64{
		"claude-sonnet-4-6": func(u *price.Usage) float64 {
			return float64(u.Input)*3 + float64(u.Output)*15 + float64(u.CacheRead)*0.30 + float64(u.CacheWrite)*3.75 + float64(u.CacheWrite1h)*6
		},
		"gpt-4o": func(u *price.Usage) float64 {
			return float64(u.Input)*2.5 + float64(u.Output)*10 + float64(u.CacheRead)*1.25
		},
	}
	for model, counted := range c.by {
		got := recorded[model]
		if got == nil || *got != *counted {
			t.Errorf("%s: %+v is on record, and the provider counted %+v", model, got, counted)
			continue
		}
		want := byHand[model](counted) * 1000
		if off := math.Abs(float64(cost[model])-want) / want; off > 0.01 {
			t.Errorf("%s: %d nanos, and by hand %f", model, cost[model], want)
		}
	}
	t.Logf("%d calls of %d SDKs: %v, %v nanos", c.calls, len(programs), recorded, cost)
}
