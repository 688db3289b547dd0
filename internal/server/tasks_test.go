package server_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/drift"
	"signalbox/internal/roster"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// agentWith makes an agent with a role and returns its key.
func (b *box) agentWith(role, workspace string) string {
	b.t.Helper()
	var made struct{ Keys map[string]string }
	label := "role"
	if !slices.Contains(roster.TaskRoles, role) {
		label = "trade" // it plays none
	}
	b.ops(201, "POST /ops/agents",
		fmt.Sprintf(`{"name":"%s-one","workspace":%q,"labels":{%q:%q}}`, role, workspace, label, role), &made)
	return made.Keys["signal"]
}

const taskDispatch = `{"msg_id":"task_dispatch-T-2026-044-1772116327000","protocol_version":"AMP/1.0",` +
	`"type":"task_dispatch","from":"coordinator","to":"executor","task_id":"T-2026-044",
"timestamp":"2026-02-26T14:32:07+00:00","requires_ack":true,"payload":{"description":"Rework the timer",` +
	`"repo":"/srv/repos/app","branch":"feature/timer","risk_level":"medium",
"subtasks":[{"subtask_id":"T-2026-044-S1","description":"Do it","estimated_lines":10}],` +
	`"acceptance_criteria":["All tests pass"]}}`

const taskResult = `{"msg_id":"task_result-T-2026-044-1772116328000","protocol_version":"AMP/1.0",` +
	`"type":"task_result","from":"executor","to":"coordinator","task_id":"T-2026-044",
"timestamp":"2026-02-26T14:32:07+00:00","requires_ack":true,"payload":{"subtask_id":"T-2026-044-S1",` +
	`"completion_status":"complete","commit_hash":"a3f8d21",
"diff_summary":{"files_changed":["a.go"],"lines_added":1,"lines_removed":0},` +
	`"self_assessment":{"criteria_met":[true],"notes":["ran"]},"work_log":[]}}`

const taskRequest = `{"msg_id":"review_request-T-2026-044-1772116329000","protocol_version":"AMP/1.0",` +
	`"type":"review_request","from":"coordinator","to":"reviewer","task_id":"T-2026-044",
"timestamp":"2026-02-26T14:32:07+00:00","requires_ack":true,` +
	`"payload":{"original_dispatch_ref":"task_dispatch-T-2026-044-1772116327000",` +
	`"task_result_ref":"task_result-T-2026-044-1772116328000",
"review_scope":"full","diff_url":"https://git.example.com/x","reject_count":0}}`

func TestTheCallsOfTasks(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		keys := map[string]string{"admin": b.token(), "none": ""}
		for _, role := range []string{"coordinator", "executor", "reviewer", "cook"} {
			keys[role] = b.agentWith(role, "default")
		}
		for _, c := range []struct {
			who, call, body string
			status          int
			has             string
		}{
			{"none", "POST /amp/messages", taskDispatch, 401, "unauthenticated"},
			{"cook", "POST /amp/messages", taskDispatch, 403, "no role in tasks"},
			{"admin", "POST /ops/agents", `{"name":"x","labels":{"role":"Reviewer"}}`, 400, `Did you mean \"reviewer\"?`},
			{"admin", "PATCH /ops/agents/cook-one", `{"labels":{"role":"admin"}}`, 400, "coordinator, executor, reviewer"},
			{"executor", "POST /amp/messages", taskDispatch, 403, "AMP_E_AUTH_ROLE"},
			{"coordinator", "POST /amp/messages", `{"a":1,"a":2}`, 400, `"x_expected":"every name once"`},
			{
				"coordinator", "POST /amp/messages", strings.Replace(taskDispatch, "medium", "extreme", 1), 422,
				`"x_expected":"one of low, medium, high"`,
			},
			{"coordinator", "POST /amp/messages", strings.Repeat(" ", 1<<20) + taskDispatch, 413, "AMP_E_TOO_LARGE"},
			{"coordinator", "POST /amp/messages", taskDispatch, 202, `"status":"accepted"`},
			{"coordinator", "POST /amp/messages", taskDispatch, 200, `"status":"duplicate"`},
			{
				"coordinator", "POST /amp/messages", strings.Replace(taskDispatch, "Rework", "Repaint", 1), 409,
				"AMP_E_MSG_ID_CONFLICT",
			},
			{"executor", "GET /amp/messages?to=executor", "", 200, `"msg_id":"task_dispatch-T-2026-044-1772116327000"`},
			{"executor", "GET /amp/messages?to=reviewer", "", 403, "to=executor"},
			{"executor", "GET /amp/messages?to=cook", "", 400, "coordinator, executor or reviewer"},
			{"executor", "GET /amp/messages?wait=x", "", 400, "such as 30s"},
			{
				"executor", "POST /amp/messages/task_dispatch-T-2026-044-1/ack",
				`{"ack_of":"task_dispatch-T-2026-044-1772116327000"}`, 422, "AMP_E_REF_MISMATCH",
			},
			{"executor", "POST /amp/messages/task_dispatch-T-2026-044-1/ack", `{}`, 409, "AMP_E_REF_UNRESOLVED"},
			{
				"executor", "POST /amp/messages/task_dispatch-T-2026-044-1772116327000/ack", `{}`, 202,
				`"task_status":"executing"`,
			},
			{"executor", "POST /amp/messages/task_dispatch-T-2026-044-1772116327000/ack", `{}`, 200, `"status":"duplicate"`},
			{"executor", "POST /amp/heartbeats", `{"task_id":"T-2026-044","note":"half"}`, 202, `"generation":1`},
			{"executor", "POST /amp/heartbeats", `{"task_id":"T-2026-999"}`, 409, "AMP_E_REF_UNRESOLVED"},
			{"admin", "POST /amp/heartbeats", `{"task_id":"T-2026-044"}`, 403, "forbidden"},
			{"executor", "POST /amp/tasks/T-2026-044/instructions", `{"action":"terminate"}`, 403, "forbidden"},
			{"admin", "POST /amp/tasks/T-2026-044/instructions", `{"action":"resume"}`, 422, `"pointer":"/escalation_refs"`},
			{"admin", "POST /amp/tasks/T-2026-044/instructions", `{"action":"suspend"}`, 202, `"task_status":"suspended"`},
			{"executor", "POST /amp/messages", taskResult, 423, "AMP_E_SUSPENDED"},
			{"admin", "GET /amp/tasks?status=suspended", "", 200, `"counts":{"suspended":1}`},
			{"executor", "GET /amp/tasks/T-2026-044?messages=true", "", 200, `"x_messages":[`},
			{"executor", "GET /amp/tasks/T-2026-999", "", 404, "not_found"},
			{"executor", "GET /amp/errors", "", 200, "AMP_E_SUSPENDED"},
			{"reviewer", "GET /amp/errors", "", 200, `"errors":[]`},
			{"admin", "GET /amp/errors?limit=1", "", 200, `"next":"`},
			{"admin", "GET /amp/errors?cursor=x", "", 400, "cursor"},
			{"admin", "POST /amp/tasks/T-2026-044/instructions", `{"action":"terminate"}`, 202, `"task_status":"terminated"`},
		} {
			status, answer, _ := b.do(request{call: c.call, body: c.body, token: keys[c.who]})
			if status != c.status || !strings.Contains(answer, c.has) {
				t.Errorf("%s %s %.60s: %d, want %d with %s\n%.400s", c.who, c.call, c.body, status, c.status, c.has, answer)
			}
		}
	})
}

// TestAPlanIsApprovedOnItsPage follows a plan from the coordinator's call to the page of its gate, and
// to the inboxes.
func TestAPlanIsApprovedOnItsPage(t *testing.T) {
	eachBoxWith(t, map[string]string{"tasks.plan_approval": "true"}, func(t *testing.T, b *box) {
		coordinator, executor := b.agentWith("coordinator", "default"), b.agentWith("executor", "default")
		plan := strings.Replace(taskDispatch, `"risk_level"`,
			`"forbidden_actions":["Push to main"],"tech_constraints":{"go":"1.26"},"risk_level"`, 1)
		var refused struct {
			Gate string `json:"x_gate"`
		}
		answer, _ := b.call(409, "POST /amp/messages", coordinator, plan)
		if err := json.Unmarshal([]byte(answer), &refused); err != nil || refused.Gate == "" {
			t.Fatalf("%s %v", answer, err)
		}
		ann := b.signedIn(b.token())
		page := ann.sees("/ui/inbox/"+refused.Gate, "Rework the timer", "/srv/repos/app", "feature/timer", "All tests pass",
			"Push to main", "1.26", "T-2026-044-S1")
		if strings.Contains(page, "Approve with changes") || strings.Contains(page, "resume") {
			t.Error("a plan can be approved with changes")
		}
		if page := ann.vote(refused.Gate, url.Values{
			"do": {"modify"}, "modified": {`{"action":"resume"}`},
		}); !strings.Contains(page, "A plan is approved as it is shown") {
			t.Error(page)
		}
		if page := ann.vote(refused.Gate, url.Values{
			"do": {"approve"}, "note": {"Go ahead."},
		}); !strings.Contains(page, "Approved") {
			t.Error(page)
		}
		for key, has := range map[string]string{
			executor: `"msg_id":"task_dispatch-T-2026-044-1772116327000"`, coordinator: `"note":"Go ahead."`,
		} {
			if got, _ := b.call(200, "GET /amp/messages?wait=50s", key, ""); !strings.Contains(got, has) {
				t.Errorf("the inbox has no %s: %s", has, got)
			}
		}
		ann.sees("/ui/inbox/"+refused.Gate, "T-2026-044 was dispatched.")
		ann.sees("/ui/tasks/default/T-2026-044", "The plan is approved: Go ahead.")
		b.wantRebuilt(10)
	})
}

// TestAClaimAboutCommitsIsShown wherever a task is: verified or failed where git can look, else unverified.
func TestAClaimAboutCommitsIsShown(t *testing.T) {
	root := t.TempDir()
	eachBoxWith(t, map[string]string{"tasks.repo_roots": root, "tasks.require_git": "false"}, func(t *testing.T, b *box) {
		repo := filepath.Join(root, filepath.Base(t.Name()))
		if err := os.Mkdir(repo, 0o755); err != nil {
			t.Fatal(err)
		}
		git := func(args ...string) string {
			t.Helper()
			return testbed.Git(t, repo, args...)
		}
		git("init", "-q", "-b", "main")
		git("commit", "-q", "--allow-empty", "-m", "one")
		coordinator, executor := b.agentWith("coordinator", "default"), b.agentWith("executor", "default")
		ann := b.signedIn(b.token())
		send := func(status int, key, text, task, in, commit string) {
			t.Helper()
			text = strings.NewReplacer("T-2026-044", task, "/srv/repos/app", in, "a3f8d21", commit).Replace(text)
			b.call(status, "POST /amp/messages", key, text)
		}
		dispatched := func(task, in string) {
			send(202, coordinator, taskDispatch, task, in, "")
			b.call(202, "POST /amp/messages/task_dispatch-"+task+"-1772116327000/ack", executor, "{}")
		}
		shown := func(task string) (r amp.Record) {
			b.ops(200, "GET /amp/tasks/"+task, "", &r)
			return r
		}
		dispatched("T-2026-044", "/srv/repos/app")
		send(202, executor, taskResult, "T-2026-044", "", "a3f8d21")
		if c := shown("T-2026-044").Subtasks["T-2026-044-S1"].Claim; c == nil || c.Outcome != amp.Unverified {
			t.Errorf("%+v", c)
		}
		ann.sees("/ui/tasks/default/T-2026-044", "The repository is not read.", "unverified", "not below tasks.repo_roots")
		dispatched("T-2026-045", repo)
		send(409, executor, taskResult, "T-2026-045", "", "a3f8d21")
		ann.sees("/ui/tasks/default/T-2026-045", "read with every message and twice a minute", "failed",
			"There is no commit a3f8d21")
		git("checkout", "-q", "-b", "feature/timer")
		testbed.Write(t, filepath.Join(repo, "a.go"), "one\n")
		git("add", ".")
		git("commit", "-q", "-m", "two")
		send(202, executor, taskResult, "T-2026-045", "", git("rev-parse", "HEAD"))
		ann.sees("/ui/tasks/default/T-2026-045", "verified", "Kay &lt;kay@example.com&gt;")
		if c := shown("T-2026-045").Subtasks["T-2026-045-S1"].Claim; c.Outcome != amp.Verified || c.Author != "Kay <kay@example.com>" {
			t.Errorf("%+v", c)
		}
		b.wantRebuilt(10)
	})
}

func TestTasksStayBehindTheWallsOfTheirWorkspace(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
		here, there := b.agentWith("coordinator", "default"), b.agentWith("coordinator", "other")
		for _, key := range []string{here, there} { // each has a task of that name, which is not the other's
			if status, answer, _ := b.do(request{call: "POST /amp/messages", body: taskDispatch, token: key}); status != 202 {
				t.Errorf("%d %s", status, answer)
			}
		}
		b.ops(202, "POST /amp/tasks/T-2026-044/instructions?workspace=other", `{"action":"terminate"}`, nil)
		for call, want := range map[string]int{
			"GET /amp/tasks/T-2026-044":                 200,
			"GET /amp/tasks/T-2026-044?workspace=other": 404, "GET /amp/tasks?workspace=other": 404,
			"GET /amp/errors?workspace=other": 404, "GET /amp/messages?workspace=other": 404,
		} {
			status, answer, _ := b.do(request{call: call, token: here})
			if status != want || strings.Contains(answer, "terminated") {
				t.Errorf("%s: %d %s", call, status, answer)
			}
		}
	})
}

func TestChecksFillTheStatusAndKeepAReviewBack(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		coordinator, executor := b.agentWith("coordinator", "default"), b.agentWith("executor", "default")
		send := func(want int, key, body string) {
			t.Helper()
			if status, answer, _ := b.do(request{call: "POST /amp/messages", body: body, token: key}); status != want {
				t.Fatalf("%d, want %d: %s", status, want, answer)
			}
		}
		send(202, coordinator, taskDispatch)
		send(202, executor, taskResult)
		var ci task.CI
		b.ops(200, "GET /ops/tasks/ci", "", &ci)
		post := func(secret, event, body string) (int, string) {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write([]byte(body))
			status, answer, _ := b.do(request{call: "POST " + ci.Path, body: body, header: map[string]string{
				"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)), "X-GitHub-Event": event,
			}})
			return status, answer
		}
		const failed = `{"action":"completed","check_run":{"name":"build","status":"completed","conclusion":"failure",` +
			`"head_sha":"a3f8d21aaaa","check_suite":{"head_branch":"feature/timer"}},"repository":{"name":"app"}}`
		for _, c := range []struct {
			secret, event, body string
			status              int
			tasks               bool
		}{
			{"guess", "check_run", failed, 401, false},
			{ci.Secret, "ping", `{"zen":"x"}`, 200, false},
			{ci.Secret, "check_run", strings.Replace(failed, "a3f8d21aaaa", "bbbbbbbbbbb", 1), 200, false}, // of an older commit
			{ci.Secret, "check_run", strings.Replace(failed, `"app"`, `"other"`, 1), 200, false},
			{ci.Secret, "check_run", failed, 200, true},
			{
				ci.Secret, "check_suite",
				`{"action":"completed","check_suite":{"status":"completed","conclusion":"timed_out","head_sha":"a3f8d21aaaa",` +
					`"head_branch":"feature/timer"},"repository":{"name":"app"}}`, 200, true,
			},
			{
				ci.Secret, "check_suite",
				`{"action":"requested","check_suite":{"status":"queued","conclusion":null,"head_sha":"a3f8d21aaaa",` +
					`"head_branch":"other"},"repository":{"name":"app"}}`, 200, false,
			},
			{
				ci.Secret, "workflow_run",
				`{"action":"completed","workflow_run":{"name":"Nightly","status":"completed","conclusion":"success",` +
					`"head_sha":"a3f8d21aaaa","head_branch":"feature/timer"},"repository":{"name":"app"}}`, 200, true,
			},
			{
				ci.Secret, "workflow_run",
				`{"action":"in_progress","workflow_run":{"name":"Weekly","status":"in_progress","conclusion":null,` +
					`"head_sha":"a3f8d21aaaa","head_branch":"feature/timer"},"repository":{"name":"app"}}`, 200, true,
			},
			{ci.Secret, "workflow_run", `{"workflow_run":[]}`, 400, false},
			{ci.Secret, "", `{"branch":"feature/timer"}`, 400, false},
			{
				ci.Secret, "status",
				`{"context":"lint","state":"success","sha":"a3f8d21","branches":[{"name":"feature/timer"}],` +
					`"repository":{"name":"app"}}`, 200, true,
			},
		} {
			status, answer := post(c.secret, c.event, c.body)
			if status != c.status || strings.Contains(answer, "T-2026-044") != c.tasks {
				t.Errorf("%s: %d %s", c.event, status, answer)
			}
		}
		var shown amp.Record
		b.ops(200, "GET /amp/tasks/T-2026-044", "", &shown)
		if shown.CI["build"] != "failed" || shown.CI["lint"] != "passed" || shown.CI["check_suite"] != "failed" ||
			shown.CI["Nightly"] != "passed" || shown.CI["Weekly"] != "running" {
			t.Errorf("%+v", shown.CI)
		}
		send(409, coordinator, taskRequest)
		for _, name := range []string{"build", "check_suite"} {
			if status, answer := post(ci.Secret, "",
				`{"branch":"feature/timer","commit":"a3f8d21","check":"`+name+`","status":"passed"}`); status != 200 {
				t.Errorf("%d %s", status, answer)
			}
		}
		send(202, coordinator, taskRequest)
	})
}

func TestMessagesToARoleReachItsWebhook(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		coordinator := b.agentWith("coordinator", "default")
		hook, came := delivertest.Listen(t, "")
		var shown task.ShownWebhook
		b.ops(200, "PUT /ops/tasks/webhooks/executor", `{"url":"`+hook+`/in"}`, &shown)
		b.ops(404, "PUT /ops/tasks/webhooks/cook", `{"url":""}`, nil)
		b.ops(400, "PUT /ops/tasks/webhooks/executor", `{"url":"ftp://x"}`, nil)
		if status, answer, _ := b.do(request{
			call: "POST /amp/messages", body: taskDispatch,
			token: coordinator,
		}); status != 202 {
			t.Fatalf("%d %s", status, answer)
		}
		c := testbed.Receive(t, "the webhook", came)
		var d task.Delivered
		if err := json.Unmarshal([]byte(c.Body), &d); err != nil || d.TaskStatus != "dispatched" ||
			!strings.Contains(string(d.Message), "task_dispatch-T-2026-044-1772116327000") ||
			c.Header.Get("Webhook-Signature") == "" {
			t.Errorf("%+v %v", c, err)
		}
	})
}

// TestMessagesToAnAgentWithAnAddressComeByMail once, also when the server has begun again,
// and only to the one that holds the role once there is one.
func TestMessagesToAnAgentWithAnAddressComeByMail(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		coordinator := b.agentWith("coordinator", "default")
		first, second, other := b.register("first", "default"), b.register("second", "default"), b.register("other",
			"default")
		for _, name := range []string{"first", "second"} {
			b.ops(200, "PATCH /ops/agents/"+name, `{"labels":{"role":"executor"},"rate_limit":0}`, nil)
		}
		send := func(id, body string) {
			t.Helper()
			if status, answer, _ := b.do(request{
				call: "POST /amp/messages", body: strings.ReplaceAll(body, "T-2026-044", id),
				token: coordinator,
			}); status != 202 {
				t.Fatalf("%d %s", status, answer)
			}
		}
		mails := func(a *mailAgent, want int) (got []mailMessage) {
			t.Helper()
			testbed.Until(t, fmt.Sprintf("%d mails for %s", want, a.name), func() bool {
				got = a.inbox()
				return len(got) >= want
			})
			if len(got) != want {
				t.Fatalf("%s has %d mails, want %d: %+v", a.name, len(got), want, got)
			}
			return got
		}
		send("T-2026-044", taskDispatch)
		got := mails(first, 1)[0]
		if got.Envelope.From != "_tasks@default.signalbox.local" || got.Envelope.Subject != "task_dispatch of T-2026-044" ||
			!strings.Contains(string(got.Payload), `"branch":"feature/timer"`) {
			t.Errorf("%+v %s", got, got.Payload)
		}
		mails(second, 1)
		b.stop()
		*b = *start(t, b.config.DB.Reveal(), map[string]string{"data": b.config.Data})
		if status, answer, _ := b.do(request{
			call: "POST /amp/messages/task_dispatch-T-2026-044-1772116327000/ack",
			body: "{}", token: first.key,
		}); status != 202 {
			t.Fatalf("%d %s", status, answer)
		}
		send("T-2026-045", taskDispatch)
		mails(second, 2)
		mails(first, 2)
		if status, answer, _ := b.do(request{call: "POST /amp/messages", body: taskResult, token: first.key}); status != 202 {
			t.Fatalf("%d %s", status, answer)
		}
		send("T-2026-044",
			strings.NewReplacer(`task_dispatch-T-2026-044-1772116327000`,
				`task_dispatch-T-2026-044-1772116327999`).Replace(taskDispatch))
		mails(first, 3)  // it holds the role
		mails(second, 2) // and the other does not
		mails(other, 0)
	})
}

func TestTheMirrorFollowsTheTasks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mirror")
	b := start(t, "", map[string]string{"tasks.mirror": dir})
	if status, answer, _ := b.do(request{
		call: "POST /amp/messages", body: taskDispatch,
		token: b.agentWith("coordinator", "default"),
	}); status != 202 {
		t.Fatalf("%d %s", status, answer)
	}
	testbed.Until(t, "the task in the mirror", func() bool {
		text := testbed.ReadAny(filepath.Join(dir, "default", "T-2026-044.json"))
		return strings.Contains(text, `"task_status": "dispatched"`)
	})
}

func TestTheClockCanBeSetOnlyWhereTheConfigurationSaysSo(t *testing.T) {
	later := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	b := start(t, "", nil)
	b.ops(403, "PUT /ops/clock", `{"now":"`+later+`"}`, nil)
	b = start(t, "", map[string]string{"clock.movable": "true"})
	b.ops(400, "PUT /ops/clock", `{"now":"2999-01-01T00:00:00Z"}`, nil)
	var c drift.Time
	b.ops(200, "PUT /ops/clock", `{"now":"`+later+`"}`, &c)
	if ahead := time.Until(c.Now); ahead < 59*time.Minute {
		t.Errorf("the clock is ahead by %s", ahead)
	}
	b.ops(200, "PUT /ops/clock", `{"now":"2001-01-01T00:00:00Z"}`, &c) // never back
	if ahead := time.Until(c.Now); ahead < 59*time.Minute {
		t.Errorf("the clock was set back, to be ahead by %s", ahead)
	}
}
