package client

import (
	"cmp"
	"errors"
	"time"
)

// Failure reports that a run has failed, if there is no more to report (AMP 2.0). It ends the run, as a
// [Payload] does.
type Failure struct {
	AgentID      string         `json:"agent_id"` // that of [WithAgent] when empty
	RunID        string         `json:"run_id"`
	ProjectID    string         `json:"project_id,omitempty"` // that of [WithProject] when empty
	Summary      string         `json:"summary"`
	ErrorCode    string         `json:"error_code,omitempty"`
	ErrorMessage string         `json:"error_message,omitempty"`
	Model        string         `json:"model,omitempty"`
	InputTokens  int64          `json:"input_tokens,omitempty"`
	OutputTokens int64          `json:"output_tokens,omitempty"`
	Cost         Money          `json:"cost_usd,omitempty"`
	StartedAt    time.Time      `json:"started_at,omitzero"`
	Metadata     map[string]any `json:"metadata,omitempty"`
	WebhookURL   string         `json:"webhook_url,omitempty"`
}

func (f Failure) encode(c *Client) (path string, body []byte, err error) {
	f.AgentID, f.ProjectID = cmp.Or(f.AgentID, c.agent), cmp.Or(f.ProjectID, c.project)
	if f.RunID == "" {
		return "", nil, errors.New("a failure needs the RunID of the run that failed")
	}
	body, err = plainJSON(struct {
		Version string `json:"amp_version"`
		Type    string `json:"type"`
		Failure
	}{"2.0", "failure", f})
	return "/amp/failure", body, err
}

// Registration says what an agent can do, and which trust level it asks for (AMP 1.1). A higher level
// than it has is granted by an operator: the answer is pending, and [Client.Wait] or [Client.Gate]
// return the decision.
type Registration struct {
	AgentID      string         `json:"agent_id"` // that of [WithAgent] when empty
	Capabilities []string       `json:"capabilities,omitempty"`
	Trust        string         `json:"trust_level,omitempty"` // that is asked for, such as trusted; none when empty
	Metadata     map[string]any `json:"metadata,omitempty"`
}

func (r Registration) encode(c *Client) (path string, body []byte, err error) {
	r.AgentID = cmp.Or(r.AgentID, c.agent)
	body, err = plainJSON(struct {
		Version string `json:"amp_version"`
		Type    string `json:"type"`
		Registration
	}{"1.1", "registration", r})
	return "/amp/register", body, err
}

// Receipt reports what became of an action that a gate approved (AMP 3.0). A gate takes one: the same
// again is recognised, another is refused.
type Receipt struct {
	AgentID   string         `json:"agent_id"` // that of [WithAgent] when empty
	GateID    string         `json:"gate_id"`
	Status    string         `json:"status"` // Succeeded or Failed; Succeeded when empty
	Summary   string         `json:"summary,omitempty"`
	Artifacts []any          `json:"artifacts,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// Succeeded is the status of a [Receipt] for an action that was done. For one that could not be done it is
// [Failed].
const Succeeded = "succeeded"

func (r Receipt) encode(c *Client) (path string, body []byte, err error) {
	r.AgentID, r.Status = cmp.Or(r.AgentID, c.agent), cmp.Or(r.Status, Succeeded)
	if r.GateID == "" {
		return "", nil, errors.New("a receipt needs the GateID of the gate that approved the action")
	}
	body, err = plainJSON(struct {
		Version string `json:"amp_version"`
		Type    string `json:"type"`
		Receipt
	}{"3.0", "action_receipt", r})
	return "/amp/receipt", body, err
}
