package amp

import (
	"math"
	"math/big"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Version is the only version of the protocol that is spoken.
const Version = "AMP/1.0"

// MaxDocument is the largest document that is accepted, in bytes.
const MaxDocument = 1 << 20

// Role is a part that somebody plays in a task.
type Role string

// The roles. System is the server itself.
const (
	Admin       Role = "admin"
	Coordinator Role = "coordinator"
	Executor    Role = "executor"
	Reviewer    Role = "reviewer"
	System      Role = "system"
)

// AgentRoles are the roles that agents play. The admin is an operator, a person.
var AgentRoles = []Role{Coordinator, Executor, Reviewer}

// Type is the type of a message.
type Type string

// The types of messages.
const (
	TypeDispatch   Type = "task_dispatch"
	TypeResult     Type = "task_result"
	TypeRequest    Type = "review_request"
	TypeVerdict    Type = "review_verdict"
	TypeEscalation Type = "escalation"
)

// whole is a number that JSON Schema calls an integer, such as 3, 3.0 and 3e2.
type whole int64

// UnmarshalJSON reads any JSON number. One that does not fit becomes the largest or smallest that
// does; the schemas bound those that matter.
func (w *whole) UnmarshalJSON(text []byte) error {
	f, _, err := big.ParseFloat(string(text), 10, 64, big.ToZero)
	if err != nil {
		return err
	}
	n, _ := f.Int64()
	*w = whole(n)
	return nil
}

// Message is one of the five messages, with its payload decoded. Exactly one of the payload fields
// is set, by Type. Raw are the bytes as they came, which are what is stored.
type Message struct {
	MsgID   string `json:"msg_id"`
	Version string `json:"protocol_version"`
	Type    Type   `json:"type"`
	From    Role   `json:"from"`
	To      Role   `json:"to"`
	TaskID  string `json:"task_id"`
	// The sender's own clock: stored and shown, never compared (TSK-52).
	Timestamp   string   `json:"timestamp"`
	RequiresAck bool     `json:"requires_ack"`
	AckTimeout  whole    `json:"ack_timeout_sec,omitzero"` // seconds; 0 is the type's own
	ContextRef  []string `json:"context_ref,omitempty"`
	Payload     wire.Raw `json:"payload"`
	// Optional, and ours: with it a message of a lease that is over is refused (TSK-39).
	Generation *whole `json:"x_generation,omitempty"` // of the sender's lease, where it says so

	Dispatch   *Dispatch   `json:"-"`
	Result     *Result     `json:"-"`
	Request    *Request    `json:"-"`
	Verdict    *Verdict    `json:"-"`
	Escalation *Escalation `json:"-"`
	Raw        []byte      `json:"-"` // as it came
	hash       string      // of its content
}

// Dispatch is the payload of task_dispatch, as far as rules depend on it.
type Dispatch struct {
	Description string `json:"description"`
	Repo        string `json:"repo"`
	Branch      string `json:"branch"`
	Subtasks    []struct {
		ID          string `json:"subtask_id"`
		Description string `json:"description"`
		Lines       whole  `json:"estimated_lines"`
	} `json:"subtasks"`
	Criteria []string `json:"acceptance_criteria"`
	Risk     string   `json:"risk_level"`
	// The limits: what the executor must not do, and what it has to keep to.
	Forbidden   []string `json:"forbidden_actions,omitempty"`
	Constraints wire.Raw `json:"tech_constraints,omitzero"`
	FileScope   wire.Raw `json:"x_files,omitzero"` // see Files
}

// Result is the payload of task_result. A nil in Met means "could not be verified".
type Result struct {
	SubtaskID string `json:"subtask_id"`
	Status    string `json:"completion_status"`
	Diff      struct {
		Files   []string `json:"files_changed"`
		Added   whole    `json:"lines_added"`
		Removed whole    `json:"lines_removed"`
	} `json:"diff_summary"`
	Assessment struct {
		Met   []*bool  `json:"criteria_met"`
		Notes []string `json:"notes"`
	} `json:"self_assessment"`
	WorkLog []wire.Raw `json:"work_log"`
	Commit  string     `json:"commit_hash"`
	Author  wire.Raw   `json:"x_author,omitzero"` // who has made the commits: a name, an e-mail, or both as git has it
}

// Request is the payload of review_request.
type Request struct {
	DispatchRef string            `json:"original_dispatch_ref"`
	ResultRef   string            `json:"task_result_ref"`
	Scope       string            `json:"review_scope"`
	RejectCount whole             `json:"reject_count"`
	Notes       string            `json:"coordinator_notes"`
	CI          map[string]string `json:"ci_status"`
}

// Verdict is the payload of review_verdict.
type Verdict struct {
	Decision   string   `json:"decision"`
	Criteria   []Judged `json:"criteria_results"`
	Issues     []Issue  `json:"issues"`
	Fixes      []Fix    `json:"direct_fixes"`
	Confidence float64  `json:"confidence"`
}

// Judged is a reviewer's answer to one criterion; Passed is nil if nobody could verify it.
type Judged struct {
	Passed *bool `json:"passed"`
}

// Issue is something that a reviewer has found. Only its severity decides anything.
type Issue struct {
	Severity string `json:"severity"`
}

// Fix is something that a reviewer has corrected without sending it back.
type Fix struct {
	File   string `json:"file"`
	Change string `json:"change_type"`
	Lines  whole  `json:"diff_lines"`
}

// Escalation is the payload of escalation. It is also what the server writes, hence the tags.
type Escalation struct {
	Type        string   `json:"escalation_type"`
	Severity    string   `json:"severity"`
	TriggeredBy Role     `json:"triggered_by"`
	Description string   `json:"description"`
	Affected    []string `json:"affected_msgs"`
	Snapshot    Snapshot `json:"system_state_snapshot"`
	Suggested   []string `json:"suggested_actions,omitempty"`
	Suspended   bool     `json:"auto_suspended"`
}

// Snapshot is how a task stood when an escalation was raised.
type Snapshot struct {
	Status      string  `json:"task_status"`
	RejectCount int64   `json:"reject_count"`
	Last        *string `json:"last_successful_msg_id"`
}

// Ack is the receiver's word that a message has arrived, or why it will not be processed (TSK-15).
type Ack struct {
	Record     string   `json:"record"`
	AckID      string   `json:"ack_id"`
	Version    string   `json:"protocol_version"`
	TaskID     string   `json:"task_id"`
	Timestamp  string   `json:"timestamp"`
	AckOf      string   `json:"ack_of"`
	From       Role     `json:"from"`
	Status     string   `json:"status"`
	Problem    *Problem `json:"error,omitempty"`
	Implicit   bool     `json:"implicit,omitempty"`
	Agent      string   `json:"agent,omitempty"`
	Generation *whole   `json:"x_generation,omitempty"`
	Claim      string   `json:"x_claim,omitempty"` // a name of the process that claims the work with it
	Raw        []byte   `json:"-"`
}

// Refused is the status of an ack whose sender will not process the message.
const Refused = "refused"

// Heartbeat is a sign of life of the role that has the turn.
type Heartbeat struct {
	TaskID     string `json:"task_id"`
	From       Role   `json:"from"`
	Note       string `json:"note"`
	Generation *whole `json:"x_generation"`
	Raw        []byte `json:"-"`
}

// Instruction is a decision of the admin about a task (TSK-17). It is made by an operator over the
// API, or by the server from a decision at a gate.
type Instruction struct {
	Record      string   `json:"record"`
	ID          string   `json:"instruction_id"`
	Version     string   `json:"protocol_version"`
	TaskID      string   `json:"task_id"`
	Timestamp   string   `json:"timestamp"`
	From        Role     `json:"from"`
	Action      string   `json:"action"`
	Channel     string   `json:"channel"`
	Actor       string   `json:"actor"`
	Refs        []string `json:"escalation_refs,omitempty"`
	Reset       *bool    `json:"reset_reject_count,omitempty"`
	Target      Role     `json:"target,omitempty"`
	NewDecision string   `json:"new_decision,omitempty"`
	RollbackTo  string   `json:"rollback_to,omitempty"`
	Note        string   `json:"note,omitempty"`
	Plan        string   `json:"x_plan,omitempty"`  // the dispatch that is approved or rejected, if several wait
	Agent       string   `json:"x_agent,omitempty"` // to whom a role is given, by name or id
	Raw         []byte   `json:"-"`
}

// document gives access to the members of a document of any kind, right or wrong.
type document struct {
	object map[string]any
}

// documentOf reads what can be read of a document that may be wrong. It never fails; what cannot
// be read has no members.
func documentOf(raw []byte) document {
	if len(raw) > MaxDocument {
		return document{}
	}
	data, err := wire.Data(raw)
	if err != nil {
		return document{}
	}
	object, _ := data.(map[string]any)
	return document{object}
}

// text is a member that is text, "" otherwise.
func (d document) text(name string) string {
	text, _ := d.object[name].(string)
	return text
}

// parse takes a document through the first layers: size, JSON, version, schema. The version comes
// before the schema, because another version has another schema.
func parse(raw []byte, schema string) (data any, refusal *Refusal) {
	if len(raw) > MaxDocument {
		return nil, tooLarge()
	}
	data, err := wire.Data(raw)
	if err != nil {
		if at, twice := wire.Twice(err); twice {
			return nil, refuse(LayerParse, DuplicateKey, at, "Duplicate name in the object.").expecting("every name once",
				nil)
		}
		return nil, refuse(LayerParse, BadJSON, "", fault.From(err).Message).expecting("one JSON object, without comments",
			nil)
	}
	object, _ := data.(map[string]any)
	// A missing version is left to the schema, which says that it is missing.
	if version, ok := object["protocol_version"].(string); ok && version != Version {
		return nil, refuse(LayerSchema, WrongVersion, "/protocol_version",
			"Unsupported protocol version.").expecting("one of the supported versions: "+Version, Version)
	}
	if problems := loadSchemas().check(schema, data); len(problems) > 0 {
		return nil, &Refusal{LayerSchema, problems}
	}
	return data, nil
}

// tooLarge refuses a document for its size.
func tooLarge() *Refusal {
	return refuse(LayerParse, TooLarge, "",
		"The document is larger than 1 MiB.").expecting("at most 1 MiB; put large texts where a URL can name them", nil)
}

// decode reads what the schema has accepted into Go. What can still go wrong is a number out of
// range.
func decode(raw []byte, into any) *Refusal {
	err := wire.UnmarshalPart(raw, into)
	if err == nil {
		return nil
	}
	at := ""
	if field := fault.From(err).Field; field != "" {
		at = "/" + strings.ReplaceAll(field, ".", "/")
	}
	return refuse(LayerSchema, OutOfRange, at, "The number is out of range.")
}

// read takes a record through the layers up to its schema.
func read(raw []byte, schema string, into any) *Refusal {
	if _, refusal := parse(raw, schema); refusal != nil {
		return refusal
	}
	return decode(raw, into)
}

// ReadMessage takes a message through the layers that need nothing but the message. A message with
// warnings is accepted.
func ReadMessage(raw []byte, p Policy) (m *Message, warnings []Problem, refusal *Refusal) {
	data, refusal := parse(raw, "message")
	if refusal != nil {
		return nil, nil, refusal
	}
	m = &Message{Raw: raw, hash: hashOf(data)}
	if refusal := decode(raw, m); refusal != nil {
		return nil, nil, refusal
	}
	var payload any
	switch m.Type {
	case TypeDispatch:
		payload = made(&m.Dispatch)
	case TypeResult:
		payload = made(&m.Result)
	case TypeRequest:
		payload = made(&m.Request)
	case TypeVerdict:
		payload = made(&m.Verdict)
	default:
		payload = made(&m.Escalation)
	}
	if refusal := decode(m.Payload, payload); refusal != nil {
		return nil, nil, refusal
	}
	c := &checker{m: m, policy: p}
	c.check()
	if len(c.problems) > 0 {
		return nil, nil, &Refusal{LayerSemantic, c.problems}
	}
	return m, c.warnings, nil
}

// made sets what p points to to a new value, and returns that.
func made[T any](p **T) *T {
	*p = new(T)
	return *p
}

// ReadAck takes an ack through the layers that need nothing but the ack.
func ReadAck(raw []byte) (*Ack, *Refusal) {
	a := &Ack{Raw: raw}
	if refusal := read(raw, "ack", a); refusal != nil {
		return nil, refusal
	}
	// The path or the id is a mistake; acknowledging the wrong message would stop the wrong deadline.
	if taskOf(a.AckOf) != a.TaskID {
		return nil, refuse(LayerSemantic, RefWrongTask, "/ack_of",
			"The message belongs to another task than the ack says.").expecting("a message of "+a.TaskID, nil)
	}
	return a, nil
}

// ReadHeartbeat takes a heartbeat through the layers that need nothing else.
func ReadHeartbeat(raw []byte) (*Heartbeat, *Refusal) {
	h := &Heartbeat{Raw: raw}
	if refusal := read(raw, "heartbeat", h); refusal != nil {
		return nil, refusal
	}
	return h, nil
}

// ReadInstruction takes an instruction through the layers that need nothing else.
func ReadInstruction(raw []byte) (*Instruction, *Refusal) {
	i := &Instruction{Raw: raw}
	if refusal := read(raw, "admin_instruction", i); refusal != nil {
		return nil, refusal
	}
	for n, ref := range i.Refs {
		if taskOf(ref) != i.TaskID {
			return nil, refuse(LayerSemantic, RefWrongTask, at("/escalation_refs", n),
				"The escalation belongs to another task.").expecting("an open escalation of "+i.TaskID, nil)
		}
	}
	return i, nil
}

// taskOf is the task in a message's id, whose form the schema has checked.
func taskOf(msgID string) string {
	_, rest, _ := strings.Cut(msgID, "-T-")
	if end := strings.LastIndexByte(rest, '-'); end >= 0 {
		rest = rest[:end]
	}
	return "T-" + rest
}

// seconds is a number of seconds in microseconds. It saturates, since agents choose timeouts.
func seconds(n int64) int64 {
	const micro = 1_000_000
	if n > math.MaxInt64/micro {
		return math.MaxInt64
	}
	return n * micro
}

// KindOf is what a document says that it is. What does not say so is taken for a message, whose
// schema then explains what is missing.
func KindOf(raw []byte) Kind {
	switch documentOf(raw).text("record") {
	case "ack":
		return InAck
	case "heartbeat":
		return InHeartbeat
	case "admin_instruction":
		return InInstruction
	}
	return InMessage
}

// Check takes a document of any kind through the layers that need nothing but the document, for
// `signalbox task validate`.
func Check(raw []byte, p Policy) (warnings []Problem, refusal *Refusal) {
	in, refusal := p.Read(KindOf(raw), raw)
	return in.Warnings, refusal
}
