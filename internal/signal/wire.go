package signal

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/wire"
)

// maxBody is the largest message that is taken, in bytes (SIG-4).
const maxBody = 1 << 20

// Signal is a completion, a gate request or a failure whose every field was checked. Parse
// makes it from the bytes of an agent; it is never changed afterwards, except that
// chooseWebhook fills in WebhookURL. Fields that a type does not have are zero.
//
// What it does not promise: that the sender may speak for AgentID, and that the run is new.
// Receive checks both.
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

	Raw      []byte       // the bytes that the agent sent, but for a user's token
	Warnings []string     // what is odd and no reason to refuse it
	Named    behalf.Named // what its metadata says of it
}

// Type is the kind of a message, as its field type names it.
type Type string

// The types. A message without type is a Completion (SIG-40).
const (
	Completion   Type = "completion"
	GateRequest  Type = "gate_request"
	Failure      Type = "failure"
	Registration Type = "registration"
	Heartbeat    Type = "heartbeat"
	Receipt      Type = "action_receipt"
)

// The values of status: how a run ended.
const (
	Completed   = "completed"
	Failed      = "failed"
	Interrupted = "interrupted"
)

// DefaultProject is the deck of signals that name none (SIG-13).
const DefaultProject = "default"

const (
	maxText      = 4000 // characters, not bytes
	maxRunID     = 128
	maxModel     = 128
	maxArtifacts = 100
	maxURL       = 2000
	// maxCost keeps nano-dollars within an int64, with room to add them up.
	maxCost = 1e9
	// farFuture is how far ahead of us a clock may be without a warning.
	farFuture = 24 * time.Hour
)

// kebab is the form of agent_id and project_id. Length is checked apart, for a better message.
var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// form says which fields a type of message has. Fields outside of it are unknown: kept, and
// warned of (SIG-8).
type form struct {
	version string          // the amp_version that a message of the type must have (SIG-6)
	fields  map[string]bool // true if the field is required
}

// newForm makes a form from two lists of names, separated by spaces.
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

// forms are the fields of every type. proposed_action of a completion is optional here and
// required by readSignal if gate_required is true (SIG-11).
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

// Parse reads a payload of type t, or with "" of the type that it names itself. All wrong
// fields are in the one error, each with what a right value looks like (SIG-5). now is only
// for warnings: an entry that was accepted once must parse for ever.
func Parse(body []byte, t Type, now time.Time) (*Signal, error) {
	f, err := readFields(body, t)
	if err != nil {
		return nil, err
	}
	return f.parseSignal(now)
}

// parseSignal reads a completion, a gate request or a failure.
func (f *fields) parseSignal(now time.Time) (*Signal, error) {
	s := f.readSignal()
	s.Raw, s.Named = f.body, f.named
	if err := f.err(); err != nil {
		return nil, err
	}
	s.addWarnings(f, now)
	return s, nil
}

// readSignal reads every field that any of the three types has. For a field that is not in the form
// of this type, the readers return zero and report nothing.
func (f *fields) readSignal() *Signal {
	s := &Signal{
		Type:    f.typ,
		AgentID: f.kebabName("agent_id", "resume-tailor"), RunID: f.Text("run_id", maxRunID, "run_01jt4k"),
		RequestID:      f.Text("request_id", maxRunID, "send-1"),
		ProjectID:      cmp.Or(f.kebabName("project_id", "job-search"), DefaultProject),
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

// unknownField is how the warning about an unknown field begins; strict mode looks for it.
const unknownField = "unknown field"

// addWarnings adds warnings about what is odd (SIG-8, SIG-10, SIG-12).
func (s *Signal) addWarnings(f *fields, now time.Time) {
	add := func(format string, args ...any) { s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...)) }
	for _, name := range f.Unknown() {
		add(unknownField+" %.80q", name)
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

// readFailure fills in why a run failed from metadata, where completions say it. A failure
// message has fields of its own for it, which come first.
func (s *Signal) readFailure() {
	about, _ := wire.Members(s.Metadata) // none if there is no metadata
	for name, field := range map[string]*string{"error_code": &s.ErrorCode, "error_message": &s.ErrorMessage} {
		if text, ok := wire.Text(about[name]); ok && *field == "" { // what is not text is not shown
			*field = text
		}
	}
}
