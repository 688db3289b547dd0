package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/cli/output"
	"signalbox/internal/counter"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// mixture is what agents do through several protocols, at random from a seed, and what should be counted of it.
type mixture struct {
	t      *testing.T
	p      *process
	random *rand.Rand
	keys   []string // of agents
	runs   int

	want struct {
		calls, tokens, opened, blocked, completed, failed, cancelled, stopped int64
		signals, runs                                                         int64 // cost in billionths of a dollar, by protocol
	}
	open []string // gates that wait
}

var mixtureAgents = []string{"anna", "bert", "carl"}

const mixturePolicy = `
version: 1
rules:
  - {name: no-spam, on: [signal], when: 'event.summary == "spam"', then: block, reason: No.}
  - {name: ask-people, on: [signal], when: 'event.summary == "ask"', then: gate}
  - {name: ask-again, on: [signal], when: 'event.summary == "again"', then: gate}
  - {name: no-model, on: [prompt], when: 'event.model == "forbidden"', then: block, reason: No.}
  - {name: fine, on: [prompt], when: 'event.model == "claude-sonnet-4-6"', then: allow}
  - {name: no-tool, on: [action], when: 'event.tool == "rm"', then: block, reason: No.}
  - {name: deploys, on: [action], when: 'event.tool == "deploy"', then: gate}
`

// mixtureProvider stands in for a provider. What a call takes is in its request.
func mixtureProvider(t *testing.T) string {
	t.Helper()
	return testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Model     string
			MaxTokens int64 `json:"max_tokens"`
			Messages  []struct{ Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Messages) != 1 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"msg_1","type":"message","role":"assistant","model":%q,`+
			`"content":[{"type":"text","text":"ok"}],"usage":{"input_tokens":%s,"output_tokens":%d}}`, in.Model, in.Messages[0].Content, in.MaxTokens)
	}))
}

// send sends something as an agent.
func (m *mixture) send(key, path, body string) (int, string) {
	m.t.Helper()
	status, answer, _ := testbed.Call(m.t, web, http.MethodPost, m.p.url+path, body, map[string]string{
		"Authorization": "Bearer " + key, "X-Api-Key": key, "Content-Type": "application/json",
		"Anthropic-Version": "2023-06-01",
	})
	return status, answer
}

// operator makes a call that has to succeed.
func (m *mixture) operator(method, path, body string, into any) {
	m.t.Helper()
	status, answer, err := m.p.call(method, path, body)
	if err != nil || status/100 != 2 {
		m.t.Fatalf("%s %s: %d %s %v", method, path, status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			m.t.Fatal(err)
		}
	}
}

// signal sends a signal, which costs something.
func (m *mixture) signal() {
	who := m.random.IntN(len(m.keys))
	summary := []string{"did it", "ask", "again", "spam"}[m.random.IntN(4)]
	cost, in, out := int64(m.random.IntN(900_000)), int64(m.random.IntN(5000)), int64(m.random.IntN(500))
	m.runs++
	status, answer := m.send(m.keys[who], "/amp/signal", fmt.Sprintf(`{"amp_version":"1.0","agent_id":%q,"run_id":"s-%d",`+
		`"project_id":%q,"status":%q,"summary":%q,"proposed_action":"Go","model":%q,"input_tokens":%d,"output_tokens":%d,`+
		`"cost_usd":%d.%06d,"gate_required":true,"started_at":"2026-03-06T22:10:38Z","completed_at":"2026-03-06T22:10:46Z"}`,
		mixtureAgents[who], m.runs, []string{"alpha", "beta"}[m.random.IntN(2)],
		[]string{"completed", "failed"}[m.runs%2], summary,
		[]string{"claude-sonnet-4-6", "own-model"}[m.random.IntN(2)], in, out, cost/1e6, cost%1e6))
	if status/100 != 2 && (summary != "spam" || status/100 != 4) {
		m.t.Fatalf("%d %s", status, answer)
	}
	m.want.tokens, m.want.signals = m.want.tokens+in+out, m.want.signals+cost*1000
	if m.runs%2 == 0 {
		m.want.completed++
	} else {
		m.want.failed++
	}
	switch summary {
	case "spam":
		m.want.blocked++
	case "ask", "again":
		m.want.opened++
		m.open = append(m.open, regexp.MustCompile(`gate_[0-9a-z]{26}`).FindString(answer))
	}
}

// model calls a model through the proxy.
func (m *mixture) model() {
	name := []string{"claude-sonnet-4-6", "claude-haiku-4-5", "forbidden"}[m.random.IntN(3)]
	in, out := int64(1+m.random.IntN(5000)), int64(1+m.random.IntN(500))
	status, answer := m.send(m.keys[m.random.IntN(len(m.keys))], "/v1/proxy/v1/messages",
		fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"%d"}]}`, name, out, in))
	if name == "forbidden" {
		m.want.blocked++
		if status != http.StatusForbidden {
			m.t.Fatalf("%d %s", status, answer)
		}
		return
	}
	if status != http.StatusOK {
		m.t.Fatalf("%d %s", status, answer)
	}
	m.want.calls, m.want.tokens = m.want.calls+1, m.want.tokens+in+out
}

// step asks before a tool is used.
func (m *mixture) step() {
	tool := []string{"ls", "rm", "deploy"}[m.random.IntN(3)]
	m.runs++
	status, answer := m.send(m.keys[m.random.IntN(len(m.keys))], "/ahp", fmt.Sprintf(`{"jsonrpc":"2.0","id":"1",`+
		`"method":"ahp/event","params":{"event_type":"pre_action","session_id":"s-%d","agent_id":"a","timestamp":"t",`+
		`"depth":0,"payload":{"tool_name":%q}}}`, m.runs, tool))
	if status != http.StatusOK {
		m.t.Fatalf("%d %s", status, answer)
	}
	switch tool {
	case "rm":
		m.want.blocked++
	case "deploy":
		m.want.opened++
	}
}

// run reports a run, which ends, goes on, or is told to stop; it keeps what it has used.
func (m *mixture) run() {
	var opened struct{ ID string }
	m.operator("POST", "/runs", `{"engine":"amp","prompt":"p","recorded":true}`, &opened)
	var events []string
	in, out, nanos := int64(0), int64(0), int64(0)
	event := func(text string) {
		in, out = in+int64(m.random.IntN(900)), out+int64(m.random.IntN(90))
		nanos += 1e7 + int64(m.random.IntN(1e6))*1000 // more than the tokens cost by the table, of which the more counts
		events = append(events, fmt.Sprintf(`{"event":%s,"usage":{"tokens":{"input":%d,"output":%d,"cache_read":0,`+
			`"cache_write":0,"reasoning":0},"cost_usd":%d.%09d,"model":"claude-opus-4-6","source":"amp"}}`, text, in, out, nanos/1e9, nanos%1e9))
	}
	event(`{"type":"started","engine":"amp","resume":{"engine":"amp","value":"` + opened.ID + `"},"title":"amp",` +
		`"meta":{}}`)
	for range m.random.IntN(4) {
		event(`{"type":"action","engine":"amp","action":{"id":"a","kind":"command","title":"ls","detail":{}},` +
			`"phase":"started","ok":null,"message":null,"level":null}`)
	}
	end := m.random.IntN(5)
	ended := func(outcome, cause string) {
		event(`{"type":"completed","engine":"amp","ok":false,"answer":"","resume":null,"error":"no","usage":null,` +
			`"outcome":"` + outcome + `","cause":"` + cause + `"}`)
	}
	switch end {
	case 0:
		event(`{"type":"completed","engine":"amp","ok":true,"answer":"done","resume":null,"error":null,"usage":null}`)
		m.want.completed++
	case 2:
		ended("cancelled", "person")
		m.want.cancelled++
	case 3:
		ended("stopped", []string{"budget", "time", "policy"}[m.random.IntN(3)])
		m.want.stopped++
	}
	m.operator("POST", "/runs/"+opened.ID+"/events", `{"from":1,"events":[`+strings.Join(events, ",")+`]}`, nil)
	if end == 1 {
		m.operator("POST", "/runs/"+opened.ID+"/cancel", `{"reason":"enough"}`, nil)
	}
	m.want.tokens, m.want.runs = m.want.tokens+in+out, m.want.runs+nanos
}

// decide decides some of the gates that signals wait for.
func (m *mixture) decide() {
	if len(m.open) == 0 {
		return
	}
	i := m.random.IntN(len(m.open))
	m.operator("POST", "/ops/gates/"+m.open[i]+"/"+[]string{"approve", "reject"}[m.random.IntN(2)], `{"note":"n"}`, nil)
	m.open = slices.Delete(m.open, i, i+1)
}

// do does so many things.
func (m *mixture) do(n int) {
	m.t.Helper()
	for range n {
		[]func(){m.signal, m.signal, m.model, m.model, m.step, m.run, m.decide}[m.random.IntN(7)]()
	}
}

// counted waits until all calls are recorded and everything is counted.
func (m *mixture) counted() (r counter.Report) {
	m.t.Helper()
	testbed.Until(m.t, "the counting", func() bool {
		var newest struct{ Entries []struct{ Seq int64 } }
		m.p.get("/ops/ledger?newest=1&limit=1", &newest)
		r = counter.Report{}
		m.p.get("/ops/counters", &r)
		return r.Total.Calls >= m.want.calls && r.Seq >= newest.Entries[0].Seq
	})
	r.OldestWaitingSeconds, r.Seq = nil, 0
	return r
}

// nanos is an amount as whole billionths of a dollar.
func nanos(usd float64) int64 { return int64(math.Round(usd * 1e9)) }

// figures are the numbers that every view has, as whole numbers.
type figures struct{ Cost, Input, Output, Calls, Blocks, Opened, Approved, Rejected, Completed, Failed, Cancelled, Stopped int64 }

func figuresOf(s counter.Sum) figures {
	return figures{
		nanos(s.CostUSD), s.InputTokens, s.OutputTokens, s.Calls, s.Blocks, s.Gates.Opened, s.Gates.Approved,
		s.Gates.Rejected, s.Runs.Completed, s.Runs.Failed, s.Runs.Cancelled, s.Runs.Stopped,
	}
}

func (f *figures) add(o figures) {
	f.Cost, f.Input, f.Output = f.Cost+o.Cost, f.Input+o.Input, f.Output+o.Output
	f.Calls, f.Blocks = f.Calls+o.Calls, f.Blocks+o.Blocks
	f.Opened, f.Approved, f.Rejected = f.Opened+o.Opened, f.Approved+o.Approved, f.Rejected+o.Rejected
	f.Completed, f.Failed = f.Completed+o.Completed, f.Failed+o.Failed
	f.Cancelled, f.Stopped = f.Cancelled+o.Cancelled, f.Stopped+o.Stopped
}

// agree compares every view of what was counted.
func (m *mixture) agree(when string) counter.Report {
	m.t.Helper()
	r := m.counted()
	whole := figuresOf(r.Total)
	same := func(view string, got figures) {
		m.t.Helper()
		if diff := cmp.Diff(whole, got); diff != "" {
			m.t.Errorf("%s: %s is not the whole (-whole +view):\n%s", when, view, diff)
		}
	}
	if w := m.want; whole.Calls != w.calls || whole.Input+whole.Output != w.tokens || whole.Blocks != w.blocked ||
		whole.Opened != w.opened || whole.Completed != w.completed || whole.Failed != w.failed ||
		whole.Cancelled != w.cancelled || whole.Stopped != w.stopped {
		m.t.Errorf("%s: counted are %+v, and there were %+v", when, whole, w)
	}
	waiting := r.Total.Gates.Waiting
	if g := r.Total.Gates; g.Opened != g.Approved+g.Rejected+g.Expired+g.Withdrawn+waiting {
		m.t.Errorf("%s: %+v", when, g)
	}
	for _, p := range r.Protocols {
		cost := nanos(p.Counts.CostUSD)
		if p.Name == "amp" && cost != m.want.signals || p.Name == "run" && cost != m.want.runs {
			m.t.Errorf("%s: %s cost %d, want %+v", when, p.Name, cost, m.want)
		}
	}
	for _, by := range counter.Kinds {
		same("counters --by "+by, m.byCSV(by))
		out := mustRun(m.t, m.p.dir, "counters", "--by", by)
		if cents := fmt.Sprintf("$%.2f", r.Total.CostUSD); !strings.Contains(out[strings.LastIndex(out, "total"):], cents) {
			m.t.Errorf("%s: counters --by %s does not say %s:\n%s", when, by, cents, out)
		}
	}
	m.hoursAgree(when, r)
	m.viewsAgree(when, r, same)
	return r
}

// byCSV adds up what `counters --csv` prints.
func (m *mixture) byCSV(by string) (sum figures) {
	m.t.Helper()
	rows, err := csv.NewReader(strings.NewReader(mustRun(m.t, m.p.dir, "counters", "--csv", "--by", by))).ReadAll()
	if err != nil || len(rows) < 2 {
		m.t.Fatalf("%v %v", rows, err)
	}
	for _, row := range rows[1:] {
		cell := func(name string) int64 {
			n, err := strconv.ParseFloat(row[slices.Index(rows[0], name)], 64)
			if err != nil {
				m.t.Fatal(err)
			}
			if name == "cost_usd" {
				return nanos(n)
			}
			return int64(n)
		}
		sum.add(figures{
			cell("cost_usd"), cell("input_tokens"), cell("output_tokens"), cell("calls"), cell("blocks"), cell("gates_opened"),
			cell("gates_approved"), cell("gates_rejected"), cell("runs_completed"), cell("runs_failed"), cell("runs_cancelled"),
			cell("runs_stopped"),
		})
	}
	return sum
}

// hoursAgree looks at each hour by itself, and at each agent.
func (m *mixture) hoursAgree(when string, r counter.Report) {
	m.t.Helper()
	each := func(query string, want counter.Sum) {
		m.t.Helper()
		var one counter.Report
		m.p.get("/ops/counters?"+query, &one)
		var models, rules figures
		for _, n := range one.Models {
			models.add(figuresOf(n.Counts))
		}
		for _, n := range one.Rules {
			rules.add(figuresOf(n.Counts))
		}
		for name, got := range map[string]figures{"total": figuresOf(one.Total), "models": models, "rules": rules} {
			if diff := cmp.Diff(figuresOf(want), got); diff != "" {
				m.t.Errorf("%s: the %s of %s:\n%s", when, name, query, diff)
			}
		}
	}
	for _, h := range r.Hours {
		each("from="+h.Hour+"&to="+h.Hour, h.Counts)
	}
	for _, d := range r.Days {
		each("from="+d.Day+"&to="+d.Day, d.Counts)
	}
	for _, a := range r.Agents {
		if a.ID != "" {
			each("agent="+a.ID, a.Counts)
		}
	}
	for _, d := range r.Decks {
		each("project="+d.Name, d.Counts)
	}
}

// viewsAgree looks at pages, at the terminal and at the metrics.
func (m *mixture) viewsAgree(when string, r counter.Report, same func(string, figures)) {
	m.t.Helper()
	cents := fmt.Sprintf("$%.2f", r.Total.CostUSD)
	waiting := r.Total.Gates.Waiting
	b := m.p.signIn(m.t)
	page := func(path string, says ...string) {
		m.t.Helper()
		_, text := b.open(m.p.url + path)
		for _, one := range says {
			if !strings.Contains(text, one) {
				m.t.Errorf("%s: %s does not say %q", when, path, one)
			}
		}
	}
	page("/ui/overview", cents+" in 30 days", fmt.Sprintf("<span>Gates waiting</span><b>%d</b>", waiting))
	page("/ui/decks", cents)
	for _, a := range r.Agents {
		if a.ID != "" {
			page("/ui/agents/"+a.Workspace+"/"+a.ID, fmt.Sprintf("<dd>%s</dd>", dollarText(a.Counts.CostUSD)))
		}
	}
	page("/ui/runs", fmt.Sprintf(`<td class="num">$%.2f</td>`, float64(m.want.runs)/1e9))
	today := r.Today()
	status := mustRun(m.t, m.p.dir, "status")
	for _, says := range []string{fmt.Sprintf("$%.2f, ", today.CostUSD), output.GatesWait(int(waiting))} {
		if !strings.Contains(status, says) {
			m.t.Errorf("%s: status does not say %q:\n%s", when, says, status)
		}
	}
	term := openTerminal(m.t, 140, 50, "top", "--data", m.p.dir)
	term.sees(fmt.Sprintf("$%.2f", today.CostUSD), fmt.Sprintf(" %d oldest", waiting), cents+" in ")
	term.types("q")
	term.ends()

	_, text, err := m.p.call("GET", "/metrics", "")
	if err != nil {
		m.t.Fatal(err)
	}
	metric := func(name string) (sum float64) {
		for _, found := range regexp.MustCompile(`(?m)^signalbox_`+name+`[^\n]* (\S+)$`).FindAllStringSubmatch(text, -1) {
			n, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				m.t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
	same("/metrics", figures{
		nanos(metric("cost_dollars_total")), int64(metric(`tokens_total\{direction="input"`)),
		int64(metric(`tokens_total\{direction="output"`)), int64(metric("model_calls_total")), int64(metric("blocks_total")),
		int64(metric(`gates_total\{outcome="opened"`)), int64(metric(`gates_total\{outcome="approved"`)),
		int64(metric(`gates_total\{outcome="rejected"`)), int64(metric(`runs_total[^\n]*status="completed"`)),
		int64(metric(`runs_total[^\n]*status="failed"`)), int64(metric(`runs_total[^\n]*status="cancelled"`)),
		int64(metric(`runs_total[^\n]*status="stopped"`)),
	})
	if got := int64(metric(`gates_waiting\{`)); got != waiting {
		m.t.Errorf("%s: /metrics says that %d wait, and %d do", when, got, waiting)
	}
}

// dollarText is an amount as pages have it.
func dollarText(usd float64) string {
	if usd > 0 && usd < 0.01 {
		return fmt.Sprintf("$%.4f", usd)
	}
	return fmt.Sprintf("$%.2f", usd)
}

func TestEveryViewOfWhatWasCountedHasOneNumber(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		seed := rand.Uint64()
		t.Logf("the seed is %d", seed)
		dir, provider := t.TempDir(), mixtureProvider(t)
		configure(t, dir, "proxy:\n  anthropic:\n    key: sk-x\n    upstream: "+provider+"\nharness:\n  timeout: 1s\n")
		database := []string{}
		if strings.HasPrefix(address, "postgres") {
			database = []string{"--db", address}
		}
		m := &mixture{t: t, p: up(t, dir, database...), random: rand.New(rand.NewPCG(seed, 0))}
		for _, name := range mixtureAgents {
			m.keys = append(m.keys, regexp.MustCompile(`rs-amp-[0-9a-z]{32}`).FindString(mustRun(t, dir, "agents", "add", name)))
		}
		m.operator("PUT", "/ops/policy", mixturePolicy, nil)
		m.do(120)
		m.agree("at first")

		// Killed while it counts. Calls of models are recorded up to 0.1 s after their answer, so they come before.
		m.do(40)
		m.counted()
		for range 30 {
			m.signal()
		}
		m.p.kill()
		m.p = up(t, dir, database...)
		before := m.agree("after kill -9")

		if code := m.p.stop(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		mustRun(t, dir, append([]string{"ledger", "rebuild"}, database...)...)
		m.p = up(t, dir, database...)
		if diff := cmp.Diff(before, m.agree("after a rebuild")); diff != "" {
			t.Errorf("counted again it is another (-before +after):\n%s", diff)
		}
	})
}

func TestATerminalCountsAllGatesAndNotAPage(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	key := regexp.MustCompile(`rs-amp-[0-9a-z]{32}`).FindString(mustRun(t, p.dir, "agents", "add", "asker"))
	for i := range 860 {
		ask(t, p, key, fmt.Sprint("run-", i), fmt.Sprint("Paint fence ", i))
	}
	for command, says := range map[string][]string{
		"top": {" 860 oldest", "and 852 more"}, "gates watch": {"860 gates wait"},
	} {
		term := openTerminal(t, 140, 50, append(strings.Fields(command), "--data", p.dir)...)
		term.sees(says...)
		term.types("q")
		term.ends()
	}
	if out := mustRun(t, p.dir, "status"); !strings.Contains(out, "860 gates wait") {
		t.Error(out)
	}
}
