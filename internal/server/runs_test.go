package server_test

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

const (
	runStarted = `{"event":{"type":"started","engine":"amp","resume":{"engine":"amp","value":"T-1"},"title":"amp",` +
		`"meta":{}},"usage":{"tokens":{"input":1,"output":2,"cache_read":0,"cache_write":0,"reasoning":0},` +
		`"cost_usd":null,"source":"amp"}}`
	runActed = `{"event":{"type":"action","engine":"amp","action":{"id":"a","kind":"command","title":"ls",` +
		`"detail":{}},"phase":"started","ok":null,"message":null,"level":null},"usage":{"tokens":{"input":1,"output":2,` +
		`"cache_read":0,"cache_write":0,"reasoning":0},"cost_usd":null,"source":"amp"}}`
	runCompleted = `{"event":{"type":"completed","engine":"amp","ok":true,"answer":"done","resume":null,"error":null,` +
		`"usage":null},"usage":{"tokens":{"input":5,"output":2,"cache_read":0,"cache_write":0,"reasoning":0},` +
		`"cost_usd":0.25,"source":"amp"}}`
)

func report(from int, events ...string) string {
	return fmt.Sprintf(`{"from":%d,"events":[%s]}`, from, strings.Join(events, ","))
}

func TestRunsOverHTTP(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var run struct{ ID, Status string }
		b.ops(201, "POST /runs", `{"engine":"amp","prompt":"fix it","recorded":true}`, &run)
		for _, c := range []struct {
			name, call, body string
			status           int
			says             string
		}{
			{"an unknown engine", "POST /runs", `{"engine":"hal","prompt":"x","recorded":true}`, 400, "There is no engine"},
			{"no prompt", "POST /runs", `{"engine":"amp","recorded":true}`, 400, "prompt should say"},
			{"an unknown field", "POST /runs", `{"engine":"amp","prompt":"x","folder":"/"}`, 400, "folder"},
			{
				"a run that the server would start", "POST /runs", `{"engine":"amp","prompt":"x","dir":"/tmp"}`, 403,
				"starts no runs",
			},
			{"no run", "GET /runs/run_x", "", 404, "There is no run"},
			{"a gap", "POST /runs/" + run.ID + "/events", report(2, runActed), 409, "has the number 1"},
			{
				"no event", "POST /runs/" + run.ID + "/events",
				report(
					1, `{"event":{"type":"x"},"usage":{"tokens":{"input":0,"output":0,"cache_read":0,"cache_write":0,`+
						`"reasoning":0},"cost_usd":null,"source":""}}`,
				), 400, "has the type",
			},
			{"no number", "GET /runs/" + run.ID + "/events?after=x", "", 400, "after"},
			{"an unknown status", "GET /runs?status=lost", "", 400, "status should be"},
			{"a thread without an engine", "POST /runs/" + run.ID + "/pulse", `{"thread":"T-1"}`, 400, "such as amp:T-1"},
		} {
			before := b.head()
			status, answer, _ := b.do(request{call: c.call, body: c.body, token: b.token()})
			if status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%s: %d %s", c.name, status, answer)
			}
			if b.head() != before {
				t.Errorf("%s wrote something", c.name)
			}
		}
		b.ops(200, "POST /runs/"+run.ID+"/events", report(1, runStarted, runActed), nil)
		b.ops(200, "POST /runs/"+run.ID+"/pulse", `{"thread":"amp:T-1"}`, nil)
		followed := b.stream(run.ID, "after=1", "application/x-ndjson")
		if line := <-followed; !strings.HasPrefix(line, `{"n":2,`) {
			t.Errorf("%s", line)
		}
		b.ops(200, "POST /runs/"+run.ID+"/events", report(3, runCompleted), nil)
		if line := <-followed; !strings.HasPrefix(line, `{"n":3,`) || !strings.Contains(line, `"answer":"done"`) {
			t.Errorf("%s", line)
		}
		if line, more := <-followed; more {
			t.Errorf("it goes on after the end: %s", line)
		}
		var sse []string
		for line := range b.stream(run.ID, "", "text/event-stream") {
			if strings.HasPrefix(line, "id: ") {
				sse = append(sse, line)
			}
		}
		if strings.Join(sse, " ") != "id: 1 id: 2 id: 3" {
			t.Errorf("%q", sse)
		}
		var page struct {
			Runs []struct {
				ID     string
				Tokens int64
				Cost   float64 `json:"cost_usd"`
			}
		}
		b.ops(200, "GET /runs?status=completed", "", &page)
		if len(page.Runs) != 1 || page.Runs[0].Tokens != 7 || page.Runs[0].Cost != 0.25 {
			t.Errorf("%+v", page)
		}
		b.ops(409, "POST /runs/"+run.ID+"/cancel", `{}`, nil)
	})
}

// stream reads lines of the events of a run until it ends.
func (b *box) stream(id, query, media string) <-chan string {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+"/runs/"+id+"/events?"+query, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+b.token())
	req.Header.Set("Accept", media)
	res, err := b.client.Do(req) //nolint:bodyclose // who reads it does
	if err != nil {
		b.t.Fatal(err)
	}
	if got := res.Header.Get("Content-Type"); got != media {
		b.t.Errorf("%s", got)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		defer func() { _ = res.Body.Close() }()
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}

// setSchedule is the body of a schedule in a folder that the server may start runs in.
func setSchedule(folder, prompt string) string {
	quoted, _ := wire.Marshal(prompt)
	return fmt.Sprintf(`{"cron":"@daily","run":{"engine":"claude","prompt":%s,"dir":%q,"budget":{"usd":1}}}`, quoted, folder)
}

// TestRunsAreForOperators tries every call with the key of an agent, as a viewer and as an operator: who may only
// look changes nothing. What another workspace may is in walls_test.go.
func TestRunsAreForOperators(t *testing.T) {
	folder := t.TempDir()
	eachBoxWith(t, map[string]string{"runs.folders": folder}, func(t *testing.T, b *box) {
		var agent struct{ Keys struct{ Signal string } }
		b.ops(201, "POST /ops/agents", `{"name":"worker"}`, &agent)
		viewer, operator := b.operator("vera", "viewer"), b.operator("otto", "operator")
		var run, schedule struct{ ID string }
		b.ops(201, "POST /runs", `{"engine":"amp","prompt":"p","recorded":true}`, &run)
		b.ops(201, "POST /runs/schedules", setSchedule(folder, "p"), &schedule)
		wants := map[string]struct {
			body             string
			viewer, operator int
		}{
			"GET /runs":                   {"", 200, 200},
			"POST /runs":                  {`{"engine":"amp","prompt":"x","recorded":true}`, 403, 201},
			"GET /runs/{id}":              {"", 200, 200},
			"GET /runs/{id}/trace":        {"", 200, 200},
			"GET /runs/{id}/events":       {"", 200, 200},
			"POST /runs/{id}/events":      {report(1, runStarted), 403, 200},
			"POST /runs/{id}/pulse":       {`{}`, 403, 200},
			"POST /runs/{id}/access":      {"", 403, 409}, // the run is not metered
			"POST /runs/{id}/cancel":      {`{}`, 403, 200},
			"GET /runs/schedules":         {"", 200, 200},
			"POST /runs/schedules":        {setSchedule(folder, "x"), 403, 201},
			"DELETE /runs/schedules/{id}": {"", 403, 204},
		}
		tried := 0
		for path, calls := range b.calls() {
			for _, route := range calls {
				if path != "/runs" && !strings.HasPrefix(path, "/runs/") {
					continue
				}
				want, known := wants[route]
				if !known {
					t.Errorf("%s is not tried", route)
				}
				tried++
				id := run.ID
				if strings.HasPrefix(path, "/runs/schedules") {
					id = schedule.ID
				}
				call := strings.ReplaceAll(route, "{id}", id)
				if route == "GET /runs/{id}/events" {
					call += "?follow=false"
				}
				try := func(who, token string, want int) {
					before := b.head()
					status, answer, _ := b.do(request{call: call, body: wants[route].body, token: token})
					if status != want {
						t.Errorf("%s: %s: %d, want %d: %s", who, route, status, want, answer)
					}
					if b.head() != before && want != 200 && want != 201 && want != 204 {
						t.Errorf("%s: %s wrote something", who, route)
					}
				}
				try("an agent", agent.Keys.Signal, 403)
				try("a viewer", viewer, want.viewer)
				try("an operator", operator, want.operator)
			}
		}
		if tried != len(wants) {
			t.Errorf("%d calls were tried", tried)
		}
		for says, body := range map[string]string{
			"five fields":               strings.Replace(setSchedule(folder, "x"), "@daily", "daily", 1),
			"may not work in":           setSchedule("/", "x"),
			`Did you mean \"timezone\"`: strings.Replace(setSchedule(folder, "x"), `"cron"`, `"timezon":"UTC","cron"`, 1),
			"how much the run may use":  strings.Replace(setSchedule(folder, "x"), `,"budget":{"usd":1}`, "", 1),
			"skip, once or all":         strings.Replace(setSchedule(folder, "x"), `"run"`, `"catch_up":"never","run"`, 1),
			"leave out recorded":        strings.Replace(setSchedule(folder, "x"), `"engine"`, `"recorded":true,"engine"`, 1),
			"Send the body as JSON":     "",
		} {
			before := b.head()
			status, answer, _ := b.do(request{call: "POST /runs/schedules", body: body, token: operator})
			if status < 400 || status >= 500 || !strings.Contains(answer, says) || b.head() != before {
				t.Errorf("%s: %d %s", says, status, answer)
			}
		}
		b.ops(404, "DELETE /runs/schedules/sched_x", "", nil)
	})
}

// What a run uses counts for the agent that the hooks of its machine act as, and what it does as well,
// but where its hooks have counted that already. One of another machine counts for the agent that has its
// session.
func TestWhatARunUsesCountsForItsAgent(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(200, "PUT /ops/policy", `
version: 1
rules:
  - {name: spent, on: [action], when: 'recent.cost("1h") >= 2.0 && recent.tokens("1h") >= 70', then: block}
  - {name: busy, on: [action], when: 'recent.actions("1h") >= 400', then: block}
`, nil)
		run := func(opening, usd string, events ...string) {
			t.Helper()
			for i := range events {
				events[i] = strings.NewReplacer(`"input":1`, `"input":70`, `"cost_usd":null`, `"cost_usd":`+usd).Replace(events[i])
			}
			var opened struct{ ID string }
			b.ops(201, "POST /runs", opening, &opened)
			b.ops(200, "POST /runs/"+opened.ID+"/events", report(1, events...), nil)
		}
		const (
			recorded   = `{"engine":"amp","prompt":"p","recorded":true}`
			supervised = `{"engine":"amp","prompt":"p","recorded":true,"supervised":true}`
			elsewhere  = `{"engine":"amp","prompt":"p","recorded":true,"supervised":true,"host":"far.example","resume":"T-far"}`
		)
		asked := 0
		blocked := func(rule string) {
			t.Helper()
			testbed.Until(t, rule, func() bool { asked++; return strings.Contains(b.askLocally("ls"), rule) })
		}
		if got := b.askLocally("ls"); !strings.Contains(got, `"decision":"allow"`) {
			t.Fatal(got)
		}
		far := b.agentKey("far", "default")
		askFar := strings.Replace(fmt.Sprintf(askText, 1, "ls"), `"session_id":"s"`, `"session_id":"T-far"`, 1)
		b.ahp(far, askFar)
		run(supervised, "1.5", append([]string{runStarted}, slices.Repeat([]string{runActed}, 400)...)...)
		run(elsewhere, "9", strings.Replace(runActed, `"kind":"command"`, `"kind":"note"`, 1))
		testbed.Until(t, "the other agent has spent", func() bool {
			_, answer := b.ahp(far, askFar)
			return strings.Contains(answer, "spent")
		})
		if got := b.askLocally("ls"); !strings.Contains(got, `"decision":"allow"`) {
			t.Errorf("the hooks have counted the actions, and the other agent spent: %s", got)
		}
		run(recorded, "0", append([]string{runStarted}, slices.Repeat([]string{runActed}, 399)...)...)
		blocked("busy")
		if asked > 300 {
			t.Errorf("asking %d times was busy enough", asked)
		}
		run(recorded, "0.5", runStarted)
		blocked("spent")
	})
}
