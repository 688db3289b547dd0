package task

import (
	"fmt"
	"slices"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/task/proof"
)

// newSend is a command that sends one type of message with the payload from a file.
func (t *commands) newSend(kind amp.Type, use, short string) *command.Command {
	c := t.WithJSON(&command.Command{
		Use:   use,
		Short: short, Long: short + ".\n\nFILE holds the payload of " + string(kind) +
			" as JSON; - is standard input. The command makes the envelope.",
		Args: command.Exactly(2, "the id of a task, such as T-2026-044, and a file with the payload"),
	})
	c.RunE = func(c *command.Command, args []string) error {
		payload, err := t.ReadFile(args[1])
		if err != nil {
			return err
		}
		return t.printAnswer(t.Send(c.Context(), kind, args[0], payload))
	}
	return c
}

// newAck is `ack`: by default it accepts the message.
func (t *commands) newAck() *command.Command {
	c := t.About("ack MSG_ID", "Acknowledge a message, or refuse it",
		"the id of a message, from `signalbox tasks inbox`")
	refuse := c.Flags().String("refuse", "", "refuse it, with this code, such as AMP_E_BRANCH_PROTECTED")
	detail := c.Flags().String("detail", "", "why it is refused")
	c.RunE = func(c *command.Command, args []string) error {
		body := map[string]any{}
		if *refuse != "" {
			// an executor refuses a protected branch with a code, which the server acts on.
			body["status"], body["error"] = amp.Refused, map[string]string{"code": *refuse, "detail": *detail}
		}
		return t.printAnswer(t.Ack(c.Context(), args[0], body))
	}
	return c
}

// newReview is `review`. Without a file the payload is made from the task: references and the
// count of rejects are where people make mistakes.
func (t *commands) newReview() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "review TASK [FILE]", Short: "Request a review: with the payload in FILE, or of the subtask that waits for one",
		Example: "  signalbox tasks review T-2026-044 --diff https://git.example.com/app/compare/main...feature",
		Args:    command.Between(1, 2, "the id of a task, and perhaps a file with the payload"),
	})
	subtask := c.Flags().String("subtask", "", "the subtask; the one that waits when absent")
	diff := c.Flags().String("diff", "", "the address or absolute path of the diff; the repository when absent")
	notes := c.Flags().String("notes", "", "what the reviewer should look at")
	c.RunE = func(c *command.Command, args []string) error {
		var payload []byte
		var err error
		// A file of one's own, such as for an incremental review.
		if len(args) == 2 {
			payload, err = t.ReadFile(args[1])
		} else {
			var r amp.Record
			if r, err = t.Find(c.Context(), args[0], false); err == nil {
				if payload, err = amp.RequestOf(r, amp.Review{Subtask: *subtask, Diff: *diff, Notes: *notes}); err != nil {
					err = fault.Wrap(err, fault.Conflict, "There is nothing to review.")
				}
			}
		}
		if err != nil {
			return err
		}
		return t.printAnswer(t.Send(c.Context(), amp.TypeRequest, args[0], payload))
	}
	return c
}

// newEscalate is `escalate`. It fills in the snapshot of the task and the messages that it is
// about, so that somebody in trouble need only say what is wrong.
func (t *commands) newEscalate() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "escalate TASK DESCRIPTION", Short: "Escalate to the admin what you cannot solve",
		Example: "  signalbox tasks escalate T-2026-044 \"The criteria contradict each " +
			"other\" --severity warning --type conflict",
		Args: command.Exactly(2, "the id of a task, and what is wrong"),
	})
	severity := c.Flags().String("severity", "warning", "critical stops everybody, warning stops you, info stops nobody")
	kind := c.Flags().String("type", "unknown", "conflict, permission_denied, ci_failure, branch_violation or unknown")
	c.RunE = func(c *command.Command, args []string) error {
		role, err := t.Role(c.Context())
		if err != nil {
			return err
		}
		e := Escalation{Role: role, Type: *kind, Severity: *severity, Description: args[1]}
		return t.printAnswer(t.Escalate(c.Context(), args[0], e))
	}
	return c
}

// newHeartbeat is `heartbeat`, for agents that are not run by `work`.
func (t *commands) newHeartbeat() *command.Command {
	c := t.About("heartbeat TASK", "Report that work on a task goes on", "the id of a task")
	note := c.Flags().String("note", "", "how far it has come")
	c.RunE = func(c *command.Command, args []string) error {
		return t.printAnswer(t.Heartbeat(c.Context(), args[0], *note, t.lease(args[0])))
	}
	return c
}

// newResume is `resume`. TSK-17: an instruction names the escalations that it answers. Without
// names the command reads which are open, so one that arrives meanwhile is not answered unread.
func (t *commands) newResume() *command.Command {
	c := t.WithJSON(&command.Command{
		Use:   "resume TASK [ESCALATION...]",
		Short: "Answer escalations so that the task goes on; all open ones if none is named",
		Args:  command.AtLeast(1, "the id of a task, and perhaps escalations"),
	})
	keep := c.Flags().Bool("keep-count", false, "a task that was locked keeps its count of rejects")
	note := c.Flags().String("note", "", "why")
	c.RunE = func(c *command.Command, args []string) error {
		refs := slices.Clone(args[1:])
		if len(refs) == 0 {
			r, err := t.Find(c.Context(), args[0], false)
			if err != nil {
				return err
			}
			// A held verdict is among them; the server refuses to resume that, and says what to do.
			for _, o := range r.Open {
				refs = append(refs, o.ID)
			}
			if len(refs) == 0 {
				return fault.New(fault.Conflict, "No escalation of %s is open. %s", args[0], r.Waits)
			}
		}
		// TSK-54: counters of a locked task start again unless they are kept.
		body := map[string]any{"action": "resume", "escalation_refs": refs, "reset_reject_count": !*keep, "channel": "cli"}
		if *note != "" {
			body["note"] = *note
		}
		return t.printAnswer(t.Instruct(c.Context(), args[0], body))
	}
	return c
}

// newInstruct is `instruct`, for the admin's other actions. The server says which fields an action
// needs.
func (t *commands) newInstruct() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "instruct TASK ACTION",
		Short: "Instruct as the admin: terminate, suspend, approve_plan, reject_plan, " +
			"uphold_verdict, override_verdict, reassign",
		Example: `  signalbox tasks instruct T-2026-044 reassign --target executor --agent builder-2
  signalbox tasks instruct T-2026-044 override_verdict --decision approved --note "I looked at it"`,
		Args: command.Exactly(2, "the id of a task, and an action"),
	})
	target := c.Flags().String("target", "", "the role that is reassigned")
	agent := c.Flags().String("agent", "", "the agent that the role is given to; any other agent of the role when absent")
	decision := c.Flags().String("decision", "", "approved or rejected, instead of the verdict")
	note := c.Flags().String("note", "", "why")
	c.RunE = func(c *command.Command, args []string) error {
		body := map[string]any{"action": args[1], "channel": "cli"}
		for name, value := range map[string]string{
			"target": *target, "x_agent": *agent, "new_decision": *decision, "note": *note,
		} {
			if value != "" {
				body[name] = value
			}
		}
		return t.printAnswer(t.Instruct(c.Context(), args[0], body))
	}
	return c
}

// newExport is `export`. It needs an operator's token: a bundle holds what all roles wrote.
func (t *commands) newExport() *command.Command {
	c := &command.Command{
		Use:   "export TASK",
		Short: "Export everything about a task into one file, with proofs", Args: command.Exactly(1, "the id of a task"),
		Example: `  signalbox tasks export T-2026-044 --out T-2026-044.bundle
  signalbox tasks verify T-2026-044.bundle`,
	}
	out := c.Flags().String("out", "", "the file to write; standard output when absent")
	c.RunE = func(c *command.Command, args []string) error {
		r := api.Get(api.InWorkspace(taskPath(args[0])+"/bundle", t.Workspace))
		return t.Download(c.Context(), r, *out, "signalbox tasks verify")
	}
	return c
}

// newVerify is `verify`. It asks no server. The key must come from elsewhere than the bundle,
// which would verify itself otherwise.
func (t *commands) newVerify() *command.Command {
	c := t.WithJSON(&command.Command{
		Use:   "verify FILE",
		Short: "Verify a file of `tasks export` offline: the proofs, and that the rules lead to the task",
		Long: "Checks with nothing but the key that every entry is in the ledger as it stands in the file, that the rules\n" +
			"lead from the entries to the task, and that plans were approved and votes signed as they say. With --repo the\n" +
			"commits that results name are looked up in a clone of the repository. Each part is verified, unverified if\n" +
			"nobody could look, or failed. What came after the last entry of the file cannot be known.",
		Example: "  signalbox tasks verify T-2026-044.bundle --log-key ledger.pub --repo ~/src/shop",
		Args:    command.Exactly(1, "a file made by `signalbox tasks export`"),
	})
	keyPath := c.Flags().String("log-key", "", "the file with the verifier key of the ledger (in the data folder)")
	clone := c.Flags().String("repo", "", "a clone of the task's repository, to check the commits in")
	c.RunE = func(c *command.Command, args []string) error {
		// The flag is called --log-key because --key is the agent's.
		key, err := t.VerifierKey("log-key", *keyPath)
		if err != nil {
			return err
		}
		text, err := t.ReadFile(args[0])
		if err != nil {
			return err
		}
		b, err := task.ReadBundle(text)
		if err != nil {
			return fault.Wrap(err, fault.VerificationFailed, "The file cannot be read as a bundle.")
		}
		parts, err := proof.Verify(b, key)
		if err == nil && *clone != "" {
			if err = proof.CheckClone(c.Context(), parts, *clone); err != nil {
				err = fault.Wrap(err, fault.InvalidRequest, "Git cannot look into the clone at %s: %v.", *clone, err)
			}
		}
		if err != nil {
			return err
		}
		err = t.Show(map[string]any{"task": b.Task, "entries": len(b.Entries), "parts": parts}, func(w output.Printer) {
			rows := output.Rows(parts, func(p proof.Part) []string {
				return []string{string(p.State), fmt.Sprint(p.Entry), p.What, p.About, p.Why}
			})
			w.Table("", []string{"STATE", "ENTRY", "WHAT", "ABOUT", "WHY"}, rows)
			w.Print("%s is %s; all %d entries are as they were signed, and lead there.",
				b.Task.TaskID, b.Task.Status, len(b.Entries))
		})
		if i := slices.IndexFunc(parts, func(p proof.Part) bool { return p.State == amp.Failed }); err == nil && i >= 0 {
			err = fault.New(fault.VerificationFailed, "The %s %s of entry %d: %s.", parts[i].What, parts[i].About, parts[i].Entry,
				parts[i].Why)
		}
		return err
	}
	return c
}
