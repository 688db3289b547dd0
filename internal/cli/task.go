package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/wire"
)

func newTask(a *app) *cobra.Command {
	t := &taskFlags{app: a}
	c := group("task", "Tasks between agents (AMP/1.0): the board, messages, instructions",
		t.newLs(), t.newShow(), t.newErrors(), t.newInbox(),
		t.newSend(task.TypeDispatch, "dispatch TASK FILE", "Dispatch a task; as an operator, to the coordinator"),
		t.newAck(),
		t.newSend(task.TypeResult, "result TASK FILE", "Report the result of a subtask"),
		t.newReview(),
		t.newSend(task.TypeVerdict, "verdict TASK FILE", "Decide a review"),
		t.newEscalate(), t.newHeartbeat(), t.newResume(), t.newInstruct(), t.newValidate(), t.newWork(), t.newExport(), t.newVerify())
	c.PersistentFlags().StringVar(&t.key, "key", "", "the key of the agent that speaks (SIGNALBOX_TOKEN); an operator's token speaks as the admin")
	c.PersistentFlags().StringVar(&t.workspace, "workspace", "", "the workspace of the task, for operators")
	return c
}

// taskFlags are what the commands about tasks share.
type taskFlags struct {
	*app
	key, workspace string
}

// refusedCodes are those of what a policy or a person has not allowed.
var refusedCodes = []fault.Code{fault.Code(task.AuthPolicy), fault.Code(task.PlanNotApproved)}

// taskRefusal reads the error form of tasks, nil for another.
func taskRefusal(data []byte) error {
	var e task.ErrorRecord
	if err := json.Unmarshal(data, &e); err != nil || e.Record != "error" || len(e.Errors) == 0 {
		return nil //nolint:nilerr // it is another form, or none
	}
	var text strings.Builder
	for _, p := range e.Errors {
		_, _ = fmt.Fprintf(&text, "\n  %s", problemText(p))
	}
	return fault.New(fault.Code(e.Errors[0].Code), "Refused by the layer %s:%s", e.Layer, text.String())
}

func problemText(p task.Problem) string {
	text := fmt.Sprintf("%s at %q: %s", p.Code, p.Pointer, p.Detail)
	if p.Expected != "" {
		text += " Expected: " + p.Expected + "."
	}
	if p.Example != nil {
		example, _ := json.Marshal(p.Example)
		text += " For example: " + string(example)
	}
	return text
}

// api calls the server as the agent whose key was given, or as the operator.
func (t *taskFlags) api(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	var c *client
	if t.key != "" {
		base, err := t.address()
		if err != nil {
			return err
		}
		c = &client{base: base, token: t.key}
	} else {
		var err error
		if c, err = t.client(); err != nil {
			return err
		}
	}
	if t.workspace != "" {
		query.Set("workspace", t.workspace)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.call(ctx, method, path, body, answer)
}

func (t *taskFlags) find(ctx context.Context, id string, messages bool) (r task.Record, err error) {
	q := url.Values{}
	if messages {
		q.Set("messages", "true")
	}
	err = t.api(ctx, "GET", "/amp/tasks/"+url.PathEscape(id), q, nil, &r)
	return r, err
}

// role is the role that the key plays.
func (t *taskFlags) role(ctx context.Context) (task.Role, error) {
	var box task.Inbox
	err := t.api(ctx, "GET", "/amp/messages", url.Values{"limit": {"1"}}, nil, &box)
	return box.To, err
}

func (t *taskFlags) newLs() *cobra.Command {
	c := t.withJSON(&cobra.Command{Use: "ls", Short: "List tasks, those that changed last first", Args: exactly(0, "no arguments")})
	status := c.Flags().String("status", "", "only tasks of this status, such as executing or suspended")
	limit := c.Flags().Int("limit", 100, "how many at the most")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var page task.Page
		if err := t.api(c.Context(), "GET", "/amp/tasks", url.Values{"status": {*status}, "limit": {fmt.Sprint(*limit)}}, nil, &page); err != nil {
			return err
		}
		return t.show(page, func(w io.Writer) {
			var rows [][]string
			for _, r := range page.Tasks {
				rows = append(rows, []string{r.TaskID, r.Status, r.Risk, fmt.Sprintf("%d/%d", r.Streak, r.Count), since(r.UpdatedAt), r.Waits})
			}
			table(w, "There are no tasks. `signalbox task dispatch` begins one.", []string{"TASK", "STATUS", "RISK", "REJECTS", "CHANGED", "WAITS FOR"}, rows)
		})
	}
	return c
}

func (t *taskFlags) newShow() *cobra.Command {
	c := t.withJSON(&cobra.Command{Use: "show TASK", Short: "Show a task with its messages", Args: exactly(1, "the id of a task, such as T-2026-044")})
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := t.find(c.Context(), args[0], true)
		if err != nil {
			return err
		}
		return t.show(r, func(w io.Writer) { printTask(w, r) })
	}
	return c
}

func printTask(w io.Writer, r task.Record) {
	line := func(name, format string, args ...any) {
		if text := printable(fmt.Sprintf(format, args...)); text != "" {
			_, _ = fmt.Fprintf(w, "%-12s%s\n", name, text)
		}
	}
	line("task", "%s", r.TaskID)
	line("status", "%s (%s)", r.Status, r.Phase)
	line("risk", "%s", r.Risk)
	line("repository", "%s", strings.TrimSpace(r.Repo+" "+r.Branch))
	line("rejects", "%d in a row, %d since the last reset, %d ever", r.Streak, r.Count, r.Lifetime)
	line("waits for", "%s", r.Waits)
	for _, id := range slices.Sorted(maps.Keys(r.Subtasks)) {
		line("subtask", "%s is %s", id, r.Subtasks[id].State)
	}
	for _, c := range r.Criteria {
		line("criterion", "%s", c)
	}
	for _, o := range r.Open {
		line("escalation", "%s: %s (%s)", o.ID, o.Type, o.Severity)
	}
	for _, m := range r.Messages {
		var head struct {
			MsgID string `json:"msg_id"`
			ID    string `json:"instruction_id"`
		}
		_ = json.Unmarshal(m.Message, &head) // it was read when it came
		line("message", "%s %s", m.ReceivedAt.Local().Format(time.DateTime), head.MsgID+head.ID)
	}
}

func (t *taskFlags) newErrors() *cobra.Command {
	c := t.withJSON(&cobra.Command{Use: "errors", Short: "List what was refused and why, the newest first", Args: exactly(0, "no arguments")})
	about := c.Flags().String("task", "", "only about this task")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var page task.ErrorPage
		if err := t.api(c.Context(), "GET", "/amp/errors", url.Values{"task_id": {*about}}, nil, &page); err != nil {
			return err
		}
		return t.show(page, func(w io.Writer) {
			var rows [][]string
			for _, e := range page.Errors {
				id := ""
				if e.TaskID != nil {
					id = *e.TaskID
				}
				rows = append(rows, []string{since(e.ReceivedAt), e.Principal, id, string(e.Errors[0].Code), e.Errors[0].Pointer, e.Errors[0].Detail})
			}
			table(w, "Nothing was refused.", []string{"WHEN", "WHO", "TASK", "CODE", "WHERE", "WHY"}, rows)
		})
	}
	return c
}

func (t *taskFlags) newInbox() *cobra.Command {
	c := t.withJSON(&cobra.Command{Use: "inbox", Short: "Show the messages that wait for you; reading is not acknowledging", Args: exactly(0, "no arguments")})
	to := c.Flags().String("to", "", "the role, for operators")
	wait := c.Flags().Duration("wait", 0, "how long to wait for a message, 55s at most")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var box task.Inbox
		if err := t.api(c.Context(), "GET", "/amp/messages", url.Values{"to": {*to}, "wait": {wait.String()}}, nil, &box); err != nil {
			return err
		}
		return t.show(box, func(w io.Writer) {
			for _, m := range box.Messages {
				_, _ = fmt.Fprintf(w, "%s\n", printable(string(m.Message)))
			}
		})
	}
	return c
}

func (t *taskFlags) newValidate() *cobra.Command {
	c := t.withJSON(&cobra.Command{Use: "validate FILE", Short: "Check a message, ack, heartbeat or instruction, without a server", Args: exactly(1, "a file with a JSON document, or -")})
	c.RunE = func(_ *cobra.Command, args []string) error {
		raw, err := t.readFile(args[0])
		if err != nil {
			return err
		}
		warnings, refusal := task.Check(raw, task.Defaults())
		out := struct {
			Valid    bool           `json:"valid"`
			Layer    task.Layer     `json:"layer,omitempty"`
			Errors   []task.Problem `json:"errors,omitempty"`
			Warnings []task.Problem `json:"warnings,omitempty"`
		}{Valid: refusal == nil, Warnings: warnings}
		if refusal != nil {
			out.Layer, out.Errors = refusal.Layer, refusal.Problems
		}
		err = t.show(out, func(w io.Writer) {
			for _, p := range slices.Concat(out.Errors, out.Warnings) {
				_, _ = fmt.Fprintln(w, printable(problemText(p)))
			}
			if out.Valid {
				_, _ = fmt.Fprintln(w, "The document is valid.")
			}
		})
		if err == nil && refusal != nil {
			err = fault.New(fault.VerificationFailed, "The document is not valid (%s).", refusal.Layer)
		}
		return err
	}
	return c
}

// readFile reads a file, or standard input for -.
func (a *app) readFile(name string) ([]byte, error) {
	var raw []byte
	var err error
	if name == "-" {
		raw, err = io.ReadAll(io.LimitReader(a.in, task.MaxDocument+1))
	} else {
		raw, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.NotFound, "Cannot read %s.", name)
	}
	return raw, nil
}

// sent prints the answer to a document.
func (t *taskFlags) sent(answer task.Answer) error {
	return t.show(answer, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "%s: %s is %s.\n", sentence(answer.Status), strings.TrimSpace(answer.TaskID+" "+answer.MsgID), answer.TaskStatus)
		for _, p := range answer.Warnings {
			_, _ = fmt.Fprintf(w, "warning: %s\n", printable(problemText(p)))
		}
	})
}

// send puts a payload into its envelope and sends it.
func (t *taskFlags) send(ctx context.Context, kind task.Type, taskID string, payload []byte) (answer task.Answer, err error) {
	role, err := t.role(ctx)
	if err != nil {
		return answer, err
	}
	if !json.Valid(payload) {
		return answer, usage("The payload is not JSON.")
	}
	raw, err := task.Compose(kind, role, taskID, payload, 0, time.Now())
	if err != nil {
		return answer, err
	}
	err = t.api(ctx, "POST", "/amp/messages", url.Values{}, wire.Raw(raw), &answer)
	return answer, err
}
