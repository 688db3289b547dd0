package client

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json" // the client imports the standard library alone
	"errors"
	"strings"
	"time"
)

// Message is something to signal: a [Payload], a [GateRequest], a [Failure], a
// [Registration] or a [Receipt].
type Message interface {
	// encode makes the path and the body. The same message gives the same bytes, by which the server
	// recognises a retry.
	encode(c *Client) (path string, body []byte, err error)
}

// The values of Status: how a run ended.
const (
	Completed   = "completed"
	Failed      = "failed"
	Interrupted = "interrupted"
)

// Payload is a signal of AMP v1.0: what an agent did, and what it proposes. It ends its run. No field is
// filled in by a clock or at random, so the same Payload may be sent again, by another process too,
// and the server recognises it.
type Payload struct {
	AgentID        string         `json:"agent_id"`             // that of [WithAgent] when empty
	RunID          string         `json:"run_id"`               // [NewRunID] makes one
	ProjectID      string         `json:"project_id,omitempty"` // that of [WithProject] when empty
	Status         string         `json:"status"`               // Completed when empty
	Summary        string         `json:"summary"`              // what was done, for an operator to read
	ProposedAction string         `json:"proposed_action,omitempty"`
	Artifacts      []any          `json:"artifacts,omitempty"` // such as [Text]; shown to the operator
	Model          string         `json:"model"`
	InputTokens    int64          `json:"input_tokens"`
	OutputTokens   int64          `json:"output_tokens"`
	Cost           Money          `json:"cost_usd"`
	GateRequired   bool           `json:"gate_required"`
	StartedAt      time.Time      `json:"started_at"`
	CompletedAt    time.Time      `json:"completed_at"`
	Metadata       map[string]any `json:"metadata,omitempty"`
	WebhookURL     string         `json:"webhook_url,omitempty"`
}

func (p Payload) encode(c *Client) (path string, body []byte, err error) {
	p.AgentID, p.ProjectID = cmp.Or(p.AgentID, c.agent), cmp.Or(p.ProjectID, c.project)
	p.Status = cmp.Or(p.Status, Completed)
	if p.RunID == "" {
		return "", nil, errors.New("a signal needs a RunID, by which a retry is recognised; " +
			"client.NewRunID makes one")
	}
	body, err = plainJSON(struct {
		Version string `json:"amp_version"`
		Payload
	}{"1.0", p})
	return "/amp/signal", body, err
}

// GateRequest asks for a decision in the middle of a run (AMP 2.0). The run goes on, and may ask again
// under another RequestID.
type GateRequest struct {
	AgentID        string         `json:"agent_id"`             // that of [WithAgent] when empty
	RunID          string         `json:"run_id"`               // [NewRunID] makes one
	RequestID      string         `json:"request_id,omitempty"` // tells the requests of one run apart
	ProjectID      string         `json:"project_id,omitempty"` // that of [WithProject] when empty
	Summary        string         `json:"summary"`
	ProposedAction string         `json:"proposed_action"`
	Artifacts      []any          `json:"artifacts,omitempty"`
	Model          string         `json:"model,omitempty"`
	Metadata       map[string]any `json:"metadata,omitempty"`
	WebhookURL     string         `json:"webhook_url,omitempty"`
}

func (r GateRequest) encode(c *Client) (path string, body []byte, err error) {
	r.AgentID, r.ProjectID = cmp.Or(r.AgentID, c.agent), cmp.Or(r.ProjectID, c.project)
	if r.RunID == "" {
		return "", nil, errors.New("a gate request needs a RunID, by which a retry is recognised; " +
			"client.NewRunID makes one")
	}
	body, err = plainJSON(struct {
		Version string `json:"amp_version"`
		Type    string `json:"type"`
		GateRequest
	}{"2.0", "gate_request", r})
	return "/amp/gate_request", body, err
}

// plainJSON encodes without escaping < and & for HTML: artifacts are shown as the agent wrote them.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// NewRunID makes a random run_id, which no other run has.
func NewRunID() string { return "run_" + strings.ToLower(rand.Text()) }

// Artifact is something to show to the operator, who sees it formatted by its type. Any other value that
// encodes as JSON is an artifact too, and shown as JSON.
type Artifact struct {
	Type    string `json:"type"` // text, markdown, json, diff, url, image
	Content any    `json:"content"`
}

// Text is an artifact that is plain text.
func Text(text string) Artifact { return Artifact{"text", text} }

// Markdown is an artifact that is Markdown.
func Markdown(text string) Artifact { return Artifact{"markdown", text} }

// Diff is an artifact that is a diff in unified format.
func Diff(text string) Artifact { return Artifact{"diff", text} }

// JSON is an artifact that is any value which encodes as JSON.
func JSON(value any) Artifact { return Artifact{"json", value} }

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
