package signal

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// maxBody is the largest signal that is taken.
const maxBody = 1 << 20

// Signal is an AMP payload that is right in itself.
type Signal struct {
	Type           Type
	AgentID        string
	RunID          string
	RequestID      string // tells the gate requests of one run apart
	ProjectID      string
	Status         string
	Summary        string
	ProposedAction string
	Artifacts      []wire.Raw
	Model          string
	InputTokens    int64
	OutputTokens   int64
	CostNano       int64 // nano-dollars
	GateRequired   bool
	StartedAt      time.Time
	CompletedAt    time.Time
	Metadata       wire.Raw // an object, or nothing
	WebhookURL     string
	ErrorCode      string // of a failed run
	ErrorMessage   string

	Raw      []byte   // as it came
	Warnings []string // what is odd and no reason to refuse it
}

// Type is the kind of a message.
type Type string

// The types. The first is what a message without type is.
const (
	Completion   Type = "completion"
	GateRequest  Type = "gate_request"
	Failure      Type = "failure"
	Registration Type = "registration"
	Heartbeat    Type = "heartbeat"
	Receipt      Type = "action_receipt"
)

// The values of status.
const (
	Completed   = "completed"
	Failed      = "failed"
	Interrupted = "interrupted"
)

// DefaultProject is the deck of what names none.
const DefaultProject = "default"

const (
	maxText      = 4000 // characters
	maxRunID     = 128
	maxModel     = 128
	maxArtifacts = 100
	maxURL       = 2000
	// maxCost keeps nano-dollars within an int64, with room to add them up.
	maxCost = 1e9
	// farFuture is how far ahead of us a clock may be without a warning.
	farFuture = 24 * time.Hour
)

var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// form says which fields a type of message has, and which of them are required.
type form struct {
	version string
	fields  map[string]bool
}

func newForm(version, required, optional string) form {
	f := form{version, map[string]bool{"amp_version": true, "type": false}}
	for _, name := range strings.Fields(required) {
		f.fields[name] = true
	}
	for _, name := range strings.Fields(optional) {
		f.fields[name] = false
	}
	return f
}

var forms = map[Type]form{
	Completion: newForm("1.0",
		"agent_id run_id status summary model input_tokens output_tokens cost_usd gate_required started_at completed_at",
		"project_id proposed_action artifacts metadata webhook_url"),
	GateRequest: newForm("2.0", "agent_id run_id summary proposed_action",
		"request_id project_id artifacts model started_at metadata webhook_url"),
	Failure: newForm("2.0", "agent_id run_id summary",
		"project_id model input_tokens output_tokens cost_usd started_at error_code error_message metadata webhook_url"),
	Registration: newForm("1.1", "agent_id", "capabilities trust_level metadata"),
	Heartbeat:    newForm("2.0", "agent_id run_id", "ttl_s status summary metadata"),
	Receipt:      newForm("3.0", "agent_id gate_id status", "summary artifacts metadata"),
}

// Parse reads a payload of the type. Every field that is wrong is in the error, each
// with what a right value looks like.
// With no type the payload says which it is.
func Parse(body []byte, t Type, now time.Time) (*Signal, error) {
	f, err := readFields(body, t)
	if err != nil {
		return nil, err
	}
	return f.signal(now)
}

// signal reads a completion, a gate request or a failure.
func (f *fields) signal(now time.Time) (*Signal, error) {
	s := f.read()
	s.Raw = f.body
	if err := f.err(); err != nil {
		return nil, err
	}
	s.warn(f, now)
	return s, nil
}

// read reads every field that the form has; those it does not have are absent.
func (f *fields) read() *Signal {
	s := &Signal{
		Type:    f.typ,
		AgentID: f.name("agent_id", "resume-tailor"), RunID: f.Text("run_id", maxRunID, "run_01jt4k"),
		RequestID:      f.Text("request_id", maxRunID, "send-1"),
		ProjectID:      cmp.Or(f.name("project_id", "job-search"), DefaultProject),
		Summary:        f.Text("summary", maxText, "Rewrote the resume"),
		ProposedAction: f.Text("proposed_action", maxText, "Send it to the applicant"),
		Artifacts:      f.artifacts(), Model: f.Text("model", maxModel, "claude-sonnet-4-6"),
		InputTokens: f.Count("input_tokens"), OutputTokens: f.Count("output_tokens"), CostNano: f.dollars("cost_usd"),
		StartedAt: f.Time("started_at"), CompletedAt: f.Time("completed_at"),
		Metadata: f.metadata(), WebhookURL: f.URL("webhook_url", maxURL),
		ErrorCode:    f.Text("error_code", maxText, "timeout"),
		ErrorMessage: f.Text("error_message", maxText, "The model did not answer"),
	}
	switch f.typ {
	case GateRequest:
		s.GateRequired = true
	case Failure:
		s.Status = Failed
	default:
		s.Status, s.GateRequired = f.Word("status", Completed, Failed, Interrupted), f.Flag("gate_required")
		if s.GateRequired && s.ProposedAction == "" && !f.Failed("proposed_action") {
			f.Fail("proposed_action",
				"is missing. With gate_required it says what happens next if an operator approves, such as %q.",
				"Send it to the applicant")
		}
	}
	return s
}

// warn notes what is odd.
func (s *Signal) warn(f *fields, now time.Time) {
	add := func(format string, args ...any) { s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...)) }
	for _, name := range f.Unknown() {
		add("the field %.80q is not known", name)
	}
	if !s.CompletedAt.IsZero() && s.CompletedAt.Before(s.StartedAt) {
		add("completed_at is before started_at")
	}
	if s.CompletedAt.Sub(now) > farFuture || s.StartedAt.Sub(now) > farFuture {
		add("the times are more than a day in the future")
	}
	if s.Status == Failed {
		s.readFailure()
		if s.ErrorCode == "" {
			add("a failed run should say why in metadata.error_code")
		}
	}
}

// readFailure takes over what metadata says of a failure.
func (s *Signal) readFailure() {
	about, _ := wire.Members(s.Metadata) // none if there is no metadata
	for name, field := range map[string]*string{"error_code": &s.ErrorCode, "error_message": &s.ErrorMessage} {
		if text, ok := wire.Text(about[name]); ok && *field == "" { // what is not text is not shown
			*field = text
		}
	}
}
