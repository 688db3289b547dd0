package task

import (
	"slices"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
)

func (t *commands) newSend(kind amp.Type, use, short string) *command.Command {
	c := t.WithJSON(&command.Command{
		Use:   use,
		Short: short, Long: short + ".\n\nFILE holds the payload of " + string(kind) +
			" as JSON, - is standard input; the envelope is made for it.",
		Args: command.Exactly(2, "the id of a task, such as T-2026-044, and a file with the payload"),
	})
	c.RunE = func(c *command.Command, args []string) error {
		payload, err := t.ReadFile(args[1])
		if err != nil {
			return err
		}
		return t.sent(t.Send(c.Context(), kind, args[0], payload))
	}
	return c
}

func (t *commands) newAck() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "ack MSG_ID", Short: "Acknowledge a message, or refuse it",
		Args: command.Exactly(1, "the id of a message, from `signalbox tasks inbox`"),
	})
	refuse := c.Flags().String("refuse", "", "refuse it, with this code, such as AMP_E_BRANCH_PROTECTED")
	detail := c.Flags().String("detail", "", "why it is refused")
	c.RunE = func(c *command.Command, args []string) error {
		body := map[string]any{}
		if *refuse != "" {
			body["status"], body["error"] = amp.Refused, map[string]string{"code": *refuse, "detail": *detail}
		}
		return t.sent(t.Ack(c.Context(), args[0], body))
	}
	return c
}

func (t *commands) newReview() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "review TASK [FILE]", Short: "Ask for a review: of the payload in FILE, or of the subtask that waits for one",
		Example: "  signalbox tasks review T-2026-044 --diff https://git.example.com/app/compare/main...feature",
		Args:    command.Between(1, 2, "the id of a task, and perhaps a file with the payload"),
	})
	subtask := c.Flags().String("subtask", "", "the subtask; the one that waits when absent")
	diff := c.Flags().String("diff", "", "the address or absolute path of the diff")
	notes := c.Flags().String("notes", "", "what the reviewer should look at")
	c.RunE = func(c *command.Command, args []string) error {
		var payload []byte
		var err error
		if len(args) == 2 {
			payload, err = t.ReadFile(args[1])
		} else {
			var r amp.Record
			if r, err = t.Find(c.Context(), args[0], false); err == nil {
				if payload, err = amp.RequestOf(r, *subtask, *diff, *notes); err != nil {
					err = fault.Wrap(err, fault.Conflict, "There is nothing to review.")
				}
			}
		}
		if err != nil {
			return err
		}
		return t.sent(t.Send(c.Context(), amp.TypeRequest, args[0], payload))
	}
	return c
}

func (t *commands) newEscalate() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "escalate TASK DESCRIPTION", Short: "Say that something cannot be solved without the admin",
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
		return t.sent(t.Escalate(c.Context(), args[0], e))
	}
	return c
}

func (t *commands) newHeartbeat() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "heartbeat TASK", Short: "Say that work on a task goes on", Args: command.Exactly(1, "the id of a task"),
	})
	note := c.Flags().String("note", "", "how far it has come")
	c.RunE = func(c *command.Command, args []string) error {
		return t.sent(t.Heartbeat(c.Context(), args[0], *note, 0))
	}
	return c
}

func (t *commands) newResume() *command.Command {
	c := t.WithJSON(&command.Command{
		Use:   "resume TASK [ESCALATION...]",
		Short: "Answer escalations so that the task goes on; all that are open when none is named",
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
			for _, o := range r.Open {
				refs = append(refs, o.ID)
			}
			if len(refs) == 0 {
				return fault.New(fault.Conflict, "No escalation of %s is open. %s", args[0], r.Waits)
			}
		}
		body := map[string]any{"action": "resume", "escalation_refs": refs, "reset_reject_count": !*keep, "channel": "cli"}
		if *note != "" {
			body["note"] = *note
		}
		return t.sent(t.Instruct(c.Context(), args[0], body))
	}
	return c
}

func (t *commands) newInstruct() *command.Command {
	c := t.WithJSON(&command.Command{
		Use: "instruct TASK ACTION",
		Short: "Instruct as the admin: terminate, suspend, approve_plan, reject_plan, " +
			"uphold_verdict, override_verdict, reassign",
		Example: "  signalbox tasks instruct T-2026-044 reassign --target executor\n" +
			"  signalbox tasks instruct T-2026-044 override_verdict --decision approved --note \"I looked at it\"",
		Args: command.Exactly(2, "the id of a task, and an action"),
	})
	target := c.Flags().String("target", "", "the role that is reassigned")
	decision := c.Flags().String("decision", "", "approved or rejected, instead of the verdict")
	note := c.Flags().String("note", "", "why")
	c.RunE = func(c *command.Command, args []string) error {
		body := map[string]any{"action": args[1], "channel": "cli"}
		for name, value := range map[string]string{"target": *target, "new_decision": *decision, "note": *note} {
			if value != "" {
				body[name] = value
			}
		}
		return t.sent(t.Instruct(c.Context(), args[0], body))
	}
	return c
}

func (t *commands) newExport() *command.Command {
	c := &command.Command{
		Use:   "export TASK",
		Short: "Write everything about a task into one file, with proofs", Args: command.Exactly(1, "the id of a task"),
		Example: "  signalbox tasks export T-2026-044 --out T-2026-044.bundle\n  signalbox tasks verify T-2026-044.bundle",
	}
	out := c.Flags().String("out", "", "the file to write; standard output when absent")
	c.RunE = func(c *command.Command, args []string) error {
		r := api.Get(api.InWorkspace(taskPath(args[0])+"/bundle", t.Workspace))
		return t.Download(c.Context(), r, *out, "signalbox tasks verify")
	}
	return c
}

func (t *commands) newVerify() *command.Command {
	c := &command.Command{
		Use:   "verify FILE",
		Short: "Check a file of `task export`, offline: proofs, and the rules that lead to how the task stands",
		Args:  command.Exactly(1, "a file made by `signalbox tasks export`"),
	}
	keyPath := c.Flags().String("log-key", "", "the file with the verifier key of the ledger (in the data folder)")
	c.RunE = func(_ *command.Command, args []string) error {
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
		if err := b.Verify(key); err != nil {
			return err
		}
		t.Out.Print("%s is %s; all %d entries are as they were signed, and lead there.",
			b.Task.TaskID, b.Task.Status, len(b.Entries))
		return nil
	}
	return c
}
