package ahp

import "time"

// Type is a type of event.
type Type string

// The types of events. Those of the first group ask for a decision ([Client.Decide]);
// the others only report ([Client.Tell]).
const (
	PreAction         Type = "pre_action"
	PrePrompt         Type = "pre_prompt"
	Idle              Type = "idle"
	IntentDetection   Type = "intent_detection"
	ContextPerception Type = "context_perception"
	MemoryRecall      Type = "memory_recall"
	Planning          Type = "planning"
	Reasoning         Type = "reasoning"
	RateLimit         Type = "rate_limit"
	Confirmation      Type = "confirmation"

	PostAction   Type = "post_action"
	PostResponse Type = "post_response"
	SessionStart Type = "session_start"
	SessionEnd   Type = "session_end"
	ErrorEvent   Type = "error"
	Heartbeat    Type = "heartbeat"
	Success      Type = "success"
	RunLifecycle Type = "run_lifecycle"
	TaskList     Type = "task_list"
	Verification Type = "verification"
)

// reportOnly are the types that have no decision.
var reportOnly = map[Type]bool{
	PostAction: true, PostResponse: true, SessionStart: true, SessionEnd: true, ErrorEvent: true, Heartbeat: true,
	Success:      true,
	RunLifecycle: true, TaskList: true, Verification: true,
}

// Event is something that an agent does, or is about to do. Empty fields are filled in:
// the client's session and agent, and the current time. An approval is bound to Type
// and Payload in a session, so whatever changes from one try to the next belongs into
// Metadata (AHP-42).
type Event struct {
	Type      Type           `json:"event_type"`
	SessionID string         `json:"session_id"`
	AgentID   string         `json:"agent_id"`
	Timestamp string         `json:"timestamp"`
	Depth     uint32         `json:"depth"` // how many events it stands inside of
	Payload   any            `json:"payload"`
	Context   any            `json:"context,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// complete fills in the empty fields.
func (c *Client) complete(e Event) Event {
	if e.SessionID == "" {
		e.SessionID = c.session
	}
	if e.AgentID == "" {
		e.AgentID = c.agent
	}
	if e.Timestamp == "" {
		e.Timestamp = time.Now().UTC().Format(time.RFC3339Nano)
	}
	return e
}
