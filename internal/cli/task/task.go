// Package task is `signalbox tasks`: what agents and operators do with tasks of AMP/1.0 from the
// command line (task.go, send.go), and the worker that runs a command for each message to a role
// (work.go). Caller (caller.go) makes the HTTP calls; `demo` uses it, too.
//
// With --key a command speaks as the agent that has the key, in the role that its label says.
// Without it, it speaks as the operator of the machine, who is the admin of every task. The role
// is never a flag: the server knows it by the key.
//
// Commands take payloads and make the envelopes (amp.Compose), because ids and timestamps are
// where people and models make mistakes. Rules are the server's alone: what is sent is checked
// there, and a refusal is printed with its codes. Only `validate` and `verify` work without a
// server, with the same rules from package amp.
//
// Exit codes are those of every command: 3 means that a policy or a person has refused, as for a
// plan that nobody has approved, and 1 that the document or the moment was wrong.
package task

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// New is the group of commands about tasks.
func New(a *command.App) *command.Command {
	t := &commands{Caller{App: a}}
	c := command.Group("tasks", "Tasks between agents (AMP/1.0): the board, messages, instructions",
		t.newLs(), t.newShow(), t.newErrors(), t.newInbox(),
		t.newSend(amp.TypeDispatch, "dispatch TASK FILE", "Dispatch a task; as an operator, to the coordinator"),
		t.newAck(),
		t.newSend(amp.TypeResult, "result TASK FILE", "Report the result of a subtask"),
		t.newReview(),
		t.newSend(amp.TypeVerdict, "verdict TASK FILE", "Decide a review"),
		t.newEscalate(), t.newHeartbeat(), t.newResume(), t.newInstruct(), t.newValidate(), t.newWork(), t.newExport(),
		t.newVerify())
	c.Aliases = []string{"task"}
	// Flags of the group, so that they may stand before or after the name of a command.
	// An empty key, such as that of an empty file, must not make an agent's script speak as the operator.
	c.PersistentFlags().Func("key",
		"the key of the agent that speaks (SIGNALBOX_TOKEN); an operator's token speaks as the admin",
		func(key string) error {
			if t.Key = key; key == "" {
				return errors.New("the key is empty; leave --key out to speak with SIGNALBOX_TOKEN or as the operator")
			}
			return nil
		})
	c.PersistentFlags().StringVar(&t.Workspace, "workspace", "", "the workspace of the task, for operators")
	return c
}

// commands are the commands about tasks, which share the flags --key and --workspace.
type commands struct{ Caller }

// newLs is `ls`: the board, one line for each task.
func (t *commands) newLs() *command.Command {
	c := t.Listing("List tasks, most recently changed first")
	status := c.Flags().String("status", "", "only tasks of this status, such as executing or suspended")
	user := c.Flags().String("user", "", "only tasks on behalf of this user, for operators: a name, an id or an e-mail")
	limit := c.Flags().Int("limit", 100, "how many at the most")
	c.RunE = func(c *command.Command, _ []string) error {
		// The server orders, filters and counts; nothing is sorted here.
		q := api.Query{"status": *status, "limit": *limit, "user": *user}
		return command.Ask(c.Context(), t, api.Find("/amp/tasks", q), func(w output.Printer, page task.Page) {
			rows := output.Rows(page.Tasks, func(r amp.Record) []string {
				return []string{
					r.TaskID, r.Status, r.Risk, fmt.Sprintf("%d/%d", r.Streak, r.Count), output.Since(r.UpdatedAt),
					r.Waits,
				}
			})
			w.Table("There are no tasks. `signalbox tasks dispatch` begins one.",
				[]string{"TASK", "STATUS", "RISK", "REJECTS", "CHANGED", "WAITS FOR"}, rows)
		})
	}
	return c
}

// newShow is `show`. For people it lists the ids of the messages; --json has all of them.
func (t *commands) newShow() *command.Command {
	c := t.About("show TASK", "Show a task with its messages", "the id of a task, such as T-2026-044")
	c.RunE = func(c *command.Command, args []string) error {
		r, err := t.Find(c.Context(), args[0], true)
		if err != nil {
			return err
		}
		return t.Show(r, func(w output.Printer) { printTask(w, r) })
	}
	return c
}

// printTask prints a task for people.
func printTask(w output.Printer, r amp.Record) {
	line := func(name, format string, args ...any) {
		if text := fmt.Sprintf(format, args...); text != "" {
			w.Print("%-12s%s", name, text)
		}
	}
	line("task", "%s", r.TaskID)
	line("status", "%s (%s)", r.Status, r.Phase)
	line("risk", "%s", r.Risk)
	line("repository", "%s", strings.TrimSpace(r.Repo+" "+r.Branch))
	line("git", "%s", r.Git)
	line("rejects", "%d in a row, %d since the last reset, %d ever", r.Streak, r.Count, r.Lifetime)
	line("waits for", "%s", r.Waits)
	for _, id := range slices.Sorted(maps.Keys(r.Subtasks)) {
		line("subtask", "%s is %s", id, r.Subtasks[id].State)
		line("  result", "%s", r.Subtasks[id].Claim)
		line("  verdict", "%s", r.Subtasks[id].Bound)
	}
	for _, c := range r.Criteria {
		line("criterion", "%s", c)
	}
	for _, o := range r.Open {
		line("escalation", "%s: %s (%s)", o.ID, o.Type, o.Severity)
	}
	for _, m := range r.Messages {
		// Messages have a msg_id, instructions an instruction_id; each is printed once.
		var head struct {
			MsgID string `json:"msg_id"`
			ID    string `json:"instruction_id"`
		}
		_ = wire.UnmarshalPart(m.Message, &head) // it was read when it came
		line("message", "%s %s", output.Moment(m.ReceivedAt), head.MsgID+head.ID)
	}
}

// newErrors is `errors`: what the server refused, newest first. The first problem of each is
// shown, since the others often follow from it.
func (t *commands) newErrors() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "errors", Short: "List refused documents and why, newest first", Args: command.NoArguments(),
	})
	about := c.Flags().String("task", "", "only about this task")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"task_id": *about}
		return command.Ask(c.Context(), t, api.Find("/amp/errors", q), func(w output.Printer, page task.ErrorPage) {
			var rows [][]string
			for _, e := range page.Errors {
				id := ""
				if e.TaskID != nil {
					id = *e.TaskID
				}
				rows = append(rows,
					[]string{
						output.Since(e.ReceivedAt), e.Principal, id, string(e.Errors[0].Code), e.Errors[0].Pointer,
						e.Errors[0].Detail,
					})
			}
			w.Table("Nothing was refused.", []string{"WHEN", "WHO", "TASK", "CODE", "WHERE", "WHY"}, rows)
		})
	}
	return c
}

// newInbox is `inbox`. It prints each message as one line of JSON, for scripts.
func (t *commands) newInbox() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "inbox", Short: "Show the messages that wait for you; reading is not acknowledging", Args: command.NoArguments(),
	})
	to := c.Flags().String("to", "", "the role, for operators")
	wait := c.Flags().Duration("wait", 0, "how long to wait for a message, 55s at most")
	c.RunE = func(c *command.Command, _ []string) error {
		box, err := t.Inbox(c.Context(), api.Query{"to": *to, "wait": *wait})
		if err != nil {
			return err
		}
		return t.Show(box, func(w output.Printer) {
			for _, m := range box.Messages {
				w.Print("%s", string(m.Message))
			}
		})
	}
	return c
}

// newValidate is `validate`. It uses the rules of this program with their defaults, without a
// server, so a server with another configuration may say otherwise.
func (t *commands) newValidate() *command.Command {
	c := t.About("validate FILE", "Check a message, ack, heartbeat or instruction, without a server",
		"a file with a JSON document, or -")
	c.RunE = func(_ *command.Command, args []string) error {
		raw, err := t.ReadFile(args[0])
		if err != nil {
			return err
		}
		// Layers that need the task, such as references and state, are the server's.
		warnings, refusal := amp.Check(raw, amp.Defaults())
		out := struct {
			Valid    bool          `json:"valid"`
			Layer    amp.Layer     `json:"layer,omitempty"`
			Errors   []amp.Problem `json:"errors,omitempty"`
			Warnings []amp.Problem `json:"warnings,omitempty"`
		}{Valid: refusal == nil, Warnings: warnings}
		if refusal != nil {
			out.Layer, out.Errors = refusal.Layer, refusal.Problems
		}
		err = t.Show(out, func(w output.Printer) {
			for _, p := range slices.Concat(out.Errors, out.Warnings) {
				w.Print("%s", api.ProblemText(p))
			}
			if out.Valid {
				w.Print("The document is valid.")
			}
		})
		if err == nil && refusal != nil {
			err = fault.New(fault.VerificationFailed, "The document is not valid (%s).", refusal.Layer)
		}
		return err
	}
	return c
}

// printAnswer prints the answer to a document, with its warnings, or passes the error on. It takes
// both so that a command can end with one call.
func (t *commands) printAnswer(answer task.Answer, err error) error {
	if err != nil {
		return err
	}
	return t.Show(answer, func(w output.Printer) {
		w.Print("%s: %s is %s.",
			output.Sentence(answer.Status), strings.TrimSpace(answer.TaskID+" "+answer.MsgID), answer.TaskStatus)
		for _, p := range answer.Warnings {
			w.Print("warning: %s", api.ProblemText(p))
		}
	})
}
