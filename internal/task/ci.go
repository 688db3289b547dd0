package task

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// check is the status of one check of a commit, in our own form.
type check struct {
	Repo   string `json:"repository,omitempty"` // its name, "" for any
	Branch string `json:"branch"`
	Commit string `json:"commit,omitempty"` // "" for the newest
	Name   string `json:"check"`
	Status string `json:"status"` // passed, failed or running; other words are kept
}

// github is what GitHub posts for check_run, check_suite, workflow_run and status, as far as it is
// read.
type github struct {
	Repository struct {
		Name string `json:"name"`
	} `json:"repository"`
	CheckRun *struct {
		githubRun
		Suite struct {
			Branch string `json:"head_branch"`
		} `json:"check_suite"`
	} `json:"check_run"`
	CheckSuite  *githubRun `json:"check_suite"`
	WorkflowRun *githubRun `json:"workflow_run"`
	Context     string     `json:"context"`
	State       string     `json:"state"`
	SHA         string     `json:"sha"`
	Branches    []struct {
		Name string `json:"name"`
	} `json:"branches"`
}

// githubRun is what three of GitHub's events have in common.
type githubRun struct {
	Name       string `json:"name"`
	Status     string `json:"status"`
	Conclusion string `json:"conclusion"`
	SHA        string `json:"head_sha"`
	Branch     string `json:"head_branch"`
}

// githubEvent is the header in which GitHub names the event. Without it the body is in our form.
const githubEvent = "X-GitHub-Event"

// readChecks reads what was posted, in either form. It returns nothing for events that do not
// concern a task, such as ping, which GitHub sends when a webhook is added.
func readChecks(event string, body []byte) ([]check, error) {
	if event == "" {
		var c check
		if err := wire.Unmarshal(body, &c); err != nil {
			return nil, err
		}
		if c.Branch == "" || c.Name == "" || c.Status == "" {
			return nil, fault.New(fault.InvalidPayload,
				"branch, check and status are needed, such as "+
					`{"branch":"feature/timer","commit":"a3f8d21","check":"build","status":"failed"}.`)
		}
		return []check{c}, nil
	}
	var g github
	if err := wire.UnmarshalForeign(body, &g); err != nil {
		return nil, fault.Wrap(err, fault.InvalidPayload, "The body is not what GitHub posts for %.40q.", event)
	}
	one := func(r githubRun, branch string) []check {
		name := r.Name
		if name == "" {
			name = event
		}
		return []check{{g.Repository.Name, branch, r.SHA, name, r.protocolStatus()}}
	}
	switch {
	case event == "check_run" && g.CheckRun != nil:
		return one(g.CheckRun.githubRun, g.CheckRun.Suite.Branch), nil
	case event == "check_suite" && g.CheckSuite != nil:
		return one(*g.CheckSuite, g.CheckSuite.Branch), nil
	case event == "workflow_run" && g.WorkflowRun != nil:
		return one(*g.WorkflowRun, g.WorkflowRun.Branch), nil
	case event == "status":
		var list []check
		// A commit status has no phases: what is not pending is completed.
		posted := githubRun{Status: "completed", Conclusion: g.State}.protocolStatus()
		for _, b := range g.Branches {
			list = append(list, check{g.Repository.Name, b.Name, g.SHA, g.Context, posted})
		}
		return list, nil
	}
	return nil, nil // such as ping: nothing that concerns a task
}

// protocolStatus is the status in the protocol's words. Anything unknown counts as failed: a check
// that we do not understand must not let a review through.
func (r githubRun) protocolStatus() string {
	if r.Status != "completed" || r.Conclusion == "pending" {
		return "running"
	}
	switch r.Conclusion {
	case "success", "neutral", "skipped":
		return "passed"
	}
	return "failed" // failure, error, timed_out, cancelled, action_required and what is new
}

// ciReceiver names whose secret signs the status of checks.
const ciReceiver = "task:ci"

// CI says how checks are posted to us.
type CI struct {
	Path   string `json:"path"`
	Secret string `json:"secret"` // signs the body: X-Hub-Signature-256: sha256=HEX
}

// CI is how checks of a workspace are posted to us. The secret follows from the server's key, so
// nothing is stored.
func (s *Tasks) CI(workspace string) CI {
	return CI{"/amp/checks?workspace=" + workspace, s.core.Outbox.SecretFor(workspace, ciReceiver, 0).Reveal()}
}

// Checked lists the tasks that a check was about.
type Checked struct {
	Tasks []string `json:"tasks"`
}

// TakeChecks takes the status of a check, for every task that it is about. event is the value of
// GitHub's header, "" for our own form. The signature is verified before the body is read. Each
// task is a transaction of its own, so a retry after an error repeats some of them; setting the
// same status again changes nothing.
func (s *Tasks) TakeChecks(ctx context.Context, workspace, event, signature string, body []byte) (Checked, error) {
	out := Checked{Tasks: []string{}}
	workspace = cmp.Or(workspace, roster.DefaultWorkspace)
	mac := hmac.New(sha256.New, []byte(s.CI(workspace).Secret))
	mac.Write(body)
	given, _ := hex.DecodeString(strings.TrimPrefix(signature, "sha256="))
	if !hmac.Equal(given, mac.Sum(nil)) {
		return out, fault.New(fault.Unauthenticated,
			"Sign the body with the secret of the workspace: X-Hub-Signature-256: sha256= and the HMAC-SHA256 in hex. An "+
				"operator finds the secret with GET /ops/tasks/ci.")
	}
	list, err := readChecks(event, body)
	if err != nil {
		return out, err
	}
	for _, c := range list {
		tasks, err := s.tasksOnBranch(ctx, workspace, c)
		if err != nil {
			return out, err
		}
		for _, id := range tasks {
			err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
				build := &amp.Build{Name: amp.Clip(c.Name), Status: amp.Clip(c.Status)}
				return s.takeFound(tx, workspace, amp.Input{Kind: amp.InBuild, TaskID: id, Build: build}, nil)
			})
			if err != nil {
				return out, err
			}
			out.Tasks = append(out.Tasks, id)
		}
	}
	return out, nil
}

// tasksOnBranch finds the tasks on the branch of a check, as far as the check is about the commit
// that they reported last. A late result for an older commit must not gate a newer one.
func (s *Tasks) tasksOnBranch(ctx context.Context, workspace string, c check) (ids []string, err error) {
	tasks, err := store.All(s.core.DB.Reading(ctx), scanTask,
		"SELECT state FROM task WHERE workspace = $1 AND branch = $2 AND status <> $3 AND status <> $4 ORDER BY task_id",
		workspace, c.Branch, string(amp.Completed), string(amp.Terminated))
	for i := range tasks {
		t := &tasks[i]
		if (c.Repo == "" || path.Base(strings.TrimSuffix(strings.ReplaceAll(t.Repo, `\`, "/"), ".git")) == c.Repo) &&
			t.Reports(c.Commit) {
			ids = append(ids, t.ID)
		}
	}
	return ids, err
}
