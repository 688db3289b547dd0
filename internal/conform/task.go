package conform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// TaskHost is something that takes the documents of AMP/1.0 tasks: the rules alone, or
// a server.
type TaskHost interface {
	// Begin starts a case in a world without tasks. requirePlan says whether a person has
	// to approve plans.
	Begin(ctx context.Context, requirePlan bool) error
	// MoveTo moves the case's clock on to so many seconds after its beginning, and does
	// what is due by then. Time never goes back.
	MoveTo(ctx context.Context, seconds int64) error
	// Send sends a document with the key of a role, "" for the one that it says it is from.
	Send(ctx context.Context, by amp.Role, kind amp.Kind, raw []byte) (TaskAnswer, error)
	// Look returns the state of the case's task.
	Look(ctx context.Context, taskID string) (TaskLook, error)
	// Settle calls fn until it returns nil, as long as a host may take to do what is due.
	Settle(ctx context.Context, fn func() error) error
}

// TaskAnswer is how a host answers a document.
type TaskAnswer struct {
	Duplicate bool
	Refusal   *amp.Refusal // nil when it was taken
	Warnings  []amp.Problem
}

// TaskLook is the state of a task, as far as vectors compare it.
type TaskLook struct {
	Status        string
	Count, Streak int64
	Open          []amp.Opened
}

// CannotError is why a host cannot run a case. The case is skipped then, and not
// failed.
type CannotError string

// Error is the reason, as the report shows it.
func (c CannotError) Error() string { return string(c) }

// taskCase is what a document is expected to do, or a scenario.
type taskCase struct {
	// Valid, Layer, Errors and Warnings are how a document is judged. Given are the steps before it.
	Valid    *bool         `json:"valid"`
	Layer    amp.Layer     `json:"layer"`
	Errors   []amp.Problem `json:"errors"`
	Warnings []amp.Problem `json:"warnings"`
	Given    []taskStep    `json:"given"`
	// Principal is the role whose key sends the document, where that is not the one that it says it is from.
	Principal amp.Role `json:"principal"`
	// Steps are those of a scenario.
	Steps []taskStep `json:"steps"`
	// Effect is what a refused document causes.
	Effect struct {
		Escalation *struct {
			Type     string `json:"escalation_type"`
			Severity string `json:"severity"`
		} `json:"escalation"`
	} `json:"effect"`
	Policy struct {
		RequirePlan bool `json:"require_plan_approval"`
	} `json:"policy"`
}

// taskStep is one thing that happens, and what has to hold afterwards.
type taskStep struct {
	// At is when it happens, in seconds after the beginning. At most one of the others is
	// set; with none, time passes.
	At        int64    `json:"at"`
	Submit    wire.Raw `json:"submit"`
	Ack       wire.Raw `json:"ack"`
	Admin     wire.Raw `json:"admin"`
	Heartbeat wire.Raw `json:"heartbeat"`
	Principal amp.Role `json:"principal"` // whose key sends it, where that is not the one that it says it is from
	ResumeAll bool     `json:"resume_all"`
	Tick      bool     `json:"tick"`

	// What has to hold afterwards. A field that is not set is not checked; Duplicate always
	// is.
	Status    string    `json:"expect_status"`
	Counts    []int64   `json:"expect_counts"`
	Open      *[]string `json:"expect_open_escalations"`
	Error     amp.Code  `json:"expect_error"`
	Duplicate bool      `json:"expect_duplicate"`
}

// RunTasks runs the vectors in a folder, in the order of their names: valid and invalid
// documents, and scenarios. The error is about the folder; cases that fail are in the
// report.
func RunTasks(ctx context.Context, vectors fs.FS, host TaskHost) (report Report, err error) {
	report.Cases = []Outcome{}
	understood := false
	for _, folder := range []string{"valid", "invalid", "scenarios"} {
		names, err := fs.Glob(vectors, folder+"/*.json")
		if err != nil {
			return report, err
		}
		for _, name := range names {
			// Expectations stand beside their documents.
			if strings.HasSuffix(name, ".expect.json") {
				continue
			}
			if err := ctx.Err(); err != nil {
				return report, err
			}
			err := runTaskCase(ctx, vectors, name, host)
			understood = understood || !errors.Is(err, errNothing)
			report.add(outcome(path.Join(folder, strings.TrimSuffix(path.Base(name), ".json")), err))
		}
	}
	if !understood && len(report.Cases) > 0 {
		return report, errNothing
	}
	if len(report.Cases) == 0 {
		return report, errors.New("there are no vectors: the folder should have the folders valid, invalid and scenarios")
	}
	return report, nil
}

// runTaskCase runs one vector. A document has its expectation in a file beside it; a
// scenario is its own.
func runTaskCase(ctx context.Context, vectors fs.FS, name string, host TaskHost) error {
	raw, err := fs.ReadFile(vectors, name)
	if err != nil {
		return err
	}
	expected, scenario := raw, strings.HasPrefix(name, "scenarios/")
	if !scenario {
		if expected, err = fs.ReadFile(vectors, strings.TrimSuffix(name, ".json")+".expect.json"); err != nil {
			return err
		}
	}
	var c taskCase
	if err := wire.UnmarshalPart(expected, &c); err != nil {
		return fmt.Errorf("the expectation cannot be read: %w", err)
	}
	if scenario && len(c.Steps) == 0 || !scenario && c.Valid == nil && len(c.Errors) == 0 {
		return errNothing
	}
	for _, role := range append([]amp.Role{c.Principal}, principals(c.Given, c.Steps)...) {
		if role != "" && role != amp.Admin && !slices.Contains(amp.AgentRoles, role) {
			return fmt.Errorf("the principal should be admin, coordinator, executor or reviewer, and is %.40q", role)
		}
	}
	if err := host.Begin(ctx, c.Policy.RequirePlan); err != nil {
		return err
	}
	if scenario {
		return runTaskSteps(ctx, c.Steps, host)
	}
	if err := runTaskSteps(ctx, c.Given, host); err != nil {
		return fmt.Errorf("what was given: %w", err)
	}
	return c.document(ctx, raw, host)
}

// errNothing is about a case that says nothing we understand.
var errNothing = errors.New("nothing in it is understood: it should have valid, errors or steps")

// principals are the roles whose keys send what steps send.
func principals(lists ...[]taskStep) (roles []amp.Role) {
	for _, list := range lists {
		for i := range list {
			roles = append(roles, list[i].Principal)
		}
	}
	return roles
}

// document sends the document of a case. One that is valid by itself may still be
// refused because of the task that it is about; the vector is about the document.
func (c *taskCase) document(ctx context.Context, raw []byte, host TaskHost) error {
	kind := amp.KindOf(raw)
	got, err := host.Send(ctx, c.Principal, kind, raw)
	if err != nil {
		return err
	}
	if c.Valid != nil && *c.Valid {
		if r := got.Refusal; r != nil {
			// These layers judge the sender and the task, not the document.
			if r.Layer != amp.LayerContext && r.Layer != amp.LayerAuth {
				return fmt.Errorf("refused: %v", r)
			}
		}
		return samePlaces("warnings", c.Warnings, got.Warnings)
	}
	if got.Refusal == nil {
		return fmt.Errorf("taken, and should be refused with %s", c.Errors[0].Code)
	}
	if got.Refusal.Layer != c.Layer {
		return fmt.Errorf("refused by the layer %s, want %s: %v", got.Refusal.Layer, c.Layer, got.Refusal)
	}
	if err := samePlaces("errors", c.Errors, got.Refusal.Problems); err != nil {
		return err
	}
	// Some refusals have to reach a person.
	if want := c.Effect.Escalation; want != nil {
		look, err := host.Look(ctx, taskIDOf(raw))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(look.Open, func(o amp.Opened) bool {
			return o.Type == want.Type && o.Severity == want.Severity
		}) {
			return fmt.Errorf("no escalation %s (%s) was raised", want.Type, want.Severity)
		}
	}
	return nil
}

// taskIDOf is the task that a document is about, "" for none.
func taskIDOf(raw []byte) string {
	var d struct {
		TaskID string `json:"task_id"`
	}
	_ = wire.UnmarshalPart(raw, &d) // "" for what has none
	return d.TaskID
}

// samePlaces compares codes and pointers of problems, in order. Texts are left to each
// implementation.
func samePlaces(what string, want, got []amp.Problem) error {
	show := func(list []amp.Problem) (out []string) {
		for _, p := range list {
			out = append(out, fmt.Sprintf("%s at %q", p.Code, p.Pointer))
		}
		return out
	}
	if w, g := show(want), show(got); !slices.Equal(w, g) {
		return fmt.Errorf("%s are %v, want %v", what, g, w)
	}
	return nil
}

// runTaskSteps runs steps up to the first that fails.
func runTaskSteps(ctx context.Context, steps []taskStep, host TaskHost) error {
	last := ""
	for i := range steps {
		if err := runStep(ctx, &steps[i], &last, host); err != nil {
			return fmt.Errorf("step %d (at %d): %w", i+1, steps[i].At, err)
		}
	}
	return nil
}

// runStep does one step and checks what has to hold then. last is the task that the
// last document was about.
func runStep(ctx context.Context, s *taskStep, last *string, host TaskHost) error {
	if err := host.MoveTo(ctx, s.At); err != nil {
		return err
	}
	var got TaskAnswer
	var err error
	// Steps in which only time passes have no answer to check.
	sent := true
	send := func(kind amp.Kind, raw []byte) {
		*last = taskIDOf(raw)
		got, err = host.Send(ctx, s.Principal, kind, raw)
	}
	switch {
	case s.Submit != nil:
		send(amp.InMessage, s.Submit)
	case s.Ack != nil:
		send(amp.InAck, s.Ack)
	case s.Admin != nil:
		send(amp.InInstruction, s.Admin)
	case s.Heartbeat != nil:
		send(amp.InHeartbeat, s.Heartbeat)
	case s.ResumeAll:
		got, err = resumeAll(ctx, *last, s.At, host)
	default:
		sent = false
	}
	if err != nil {
		return err
	}
	if err := s.checkAnswer(got, sent); err != nil {
		return err
	}
	if s.Status == "" && s.Counts == nil && s.Open == nil {
		return nil
	}
	return host.Settle(ctx, func() error {
		look, err := host.Look(ctx, *last)
		if err != nil {
			return err
		}
		return s.checkState(look)
	})
}

// checkAnswer checks how a document was answered.
func (s *taskStep) checkAnswer(got TaskAnswer, sent bool) error {
	switch {
	case s.Error != "" && got.Refusal == nil:
		return fmt.Errorf("taken, and should be refused with %s", s.Error)
	case s.Error != "" && !got.Refusal.Has(s.Error):
		return fmt.Errorf("refused with %v, want %s", got.Refusal, s.Error)
	case s.Error == "" && got.Refusal != nil:
		return fmt.Errorf("refused: %v", got.Refusal)
	case sent && s.Duplicate != got.Duplicate:
		return fmt.Errorf("duplicate is %t, want %t", got.Duplicate, s.Duplicate)
	}
	return nil
}

// checkState checks the state of the task.
func (s *taskStep) checkState(look TaskLook) error {
	if s.Status != "" && s.Status != look.Status {
		return fmt.Errorf("the status is %s, want %s", look.Status, s.Status)
	}
	if counts := []int64{look.Count, look.Streak}; s.Counts != nil && !slices.Equal(s.Counts, counts) {
		return fmt.Errorf("reject_count and reject_streak are %v, want %v", counts, s.Counts)
	}
	if s.Open != nil {
		open, want := []string{}, slices.Sorted(slices.Values(*s.Open))
		for _, o := range look.Open {
			open = append(open, o.Type)
		}
		slices.Sort(open)
		if !slices.Equal(open, want) {
			return fmt.Errorf("the open escalations are %v, want %v", open, want)
		}
	}
	return nil
}

// resumeAll has the admin answer every open escalation at once.
func resumeAll(ctx context.Context, taskID string, at int64, host TaskHost) (TaskAnswer, error) {
	look, err := host.Look(ctx, taskID)
	if err != nil {
		return TaskAnswer{}, err
	}
	i := amp.Instruction{
		Record: "admin_instruction", ID: fmt.Sprintf("admin-%s-%013d", taskID, 9_000_000_000_000+at), Version: amp.Version,
		TaskID:    taskID,
		Timestamp: "2026-02-26T15:00:00Z", From: amp.Admin, Action: "resume", Channel: "api", Actor: "conform",
	}
	for _, o := range look.Open {
		i.Refs = append(i.Refs, o.ID)
	}
	raw, err := wire.Marshal(i)
	if err != nil {
		return TaskAnswer{}, err
	}
	return host.Send(ctx, amp.Admin, amp.InInstruction, raw)
}
