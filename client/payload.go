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
