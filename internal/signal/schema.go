package signal

import "signalbox/internal/wire"

// The documents of AMP v1.0 as /openapi.json describes them. Nothing is decoded into these types:
// readFields reads the members one by one, so that every mistake is told at once (SIG rules). A test
// holds them against forms: the same members, required where a form requires them.
type (
	// SignalDocument is the body of POST /amp/signal: what a run did, and what the agent proposes next.
	SignalDocument struct {
		Version        string     `json:"amp_version" doc:"the version of AMP" example:"1.0"`
		Type           string     `json:"type,omitempty" doc:"completion when absent" example:"completion"`
		AgentID        string     `json:"agent_id" doc:"the name of the key's agent" example:"resume-tailor"`
		RunID          string     `json:"run_id" doc:"chosen by the agent, once for every run" example:"run_01jt4k"`
		Status         string     `json:"status" doc:"completed, failed or interrupted" example:"completed"`
		Summary        string     `json:"summary" doc:"what was done, for an operator" example:"Rewrote the resume"`
		Model          string     `json:"model" doc:"the model that was used" example:"claude-sonnet-4-6"`
		InputTokens    int64      `json:"input_tokens" example:"1842"`
		OutputTokens   int64      `json:"output_tokens" example:"614"`
		CostUSD        float64    `json:"cost_usd" doc:"what the run cost, in dollars" example:"0.014736"`
		GateRequired   bool       `json:"gate_required" doc:"whether a person decides first" example:"true"`
		StartedAt      string     `json:"started_at" doc:"RFC 3339 with an offset" example:"2026-03-06T22:10:38Z"`
		CompletedAt    string     `json:"completed_at" doc:"RFC 3339 with an offset" example:"2026-03-06T22:10:46Z"`
		ProjectID      string     `json:"project_id,omitempty" doc:"the deck; default when absent" example:"job-search"`
		ProposedAction string     `json:"proposed_action,omitempty" doc:"what is decided" example:"Send it to the applicant"`
		Artifacts      []wire.Raw `json:"artifacts,omitempty" doc:"shown to the operator"`
		Metadata       wire.Raw   `json:"metadata,omitempty" doc:"an object; error_code says why a run failed"`
		WebhookURL     string     `json:"webhook_url,omitempty" doc:"called with the decision"`
	}
	// GateRequestDocument is the body of POST /amp/gate_request: a question in the middle of a run.
	GateRequestDocument struct {
		Version        string     `json:"amp_version" example:"2.0"`
		Type           string     `json:"type,omitempty" example:"gate_request"`
		AgentID        string     `json:"agent_id" example:"resume-tailor"`
		RunID          string     `json:"run_id" example:"run_01jt4k"`
		Summary        string     `json:"summary" example:"Found 3 matching jobs"`
		ProposedAction string     `json:"proposed_action" example:"Apply to all three"`
		RequestID      string     `json:"request_id,omitempty" doc:"tells the questions of one run apart" example:"apply-1"`
		ProjectID      string     `json:"project_id,omitempty" example:"job-search"`
		Artifacts      []wire.Raw `json:"artifacts,omitempty"`
		Model          string     `json:"model,omitempty" example:"claude-sonnet-4-6"`
		StartedAt      string     `json:"started_at,omitempty" example:"2026-03-06T22:10:38Z"`
		Metadata       wire.Raw   `json:"metadata,omitempty"`
		WebhookURL     string     `json:"webhook_url,omitempty"`
	}
	// FailureDocument is the body of POST /amp/failure.
	FailureDocument struct {
		Version      string   `json:"amp_version" example:"2.0"`
		Type         string   `json:"type,omitempty" example:"failure"`
		AgentID      string   `json:"agent_id" example:"resume-tailor"`
		RunID        string   `json:"run_id" example:"run_01jt4m"`
		Summary      string   `json:"summary" example:"The model did not answer"`
		ProjectID    string   `json:"project_id,omitempty" example:"job-search"`
		Model        string   `json:"model,omitempty" example:"claude-sonnet-4-6"`
		InputTokens  int64    `json:"input_tokens,omitempty" example:"1842"`
		OutputTokens int64    `json:"output_tokens,omitempty" example:"0"`
		CostUSD      float64  `json:"cost_usd,omitempty" example:"0.005526"`
		StartedAt    string   `json:"started_at,omitempty" example:"2026-03-06T22:10:38Z"`
		ErrorCode    string   `json:"error_code,omitempty" example:"timeout"`
		ErrorMessage string   `json:"error_message,omitempty" example:"No answer within 60 seconds"`
		Metadata     wire.Raw `json:"metadata,omitempty"`
		WebhookURL   string   `json:"webhook_url,omitempty"`
	}
	// RegistrationDocument is the body of POST /amp/register.
	RegistrationDocument struct {
		Version      string   `json:"amp_version" example:"1.1"`
		Type         string   `json:"type,omitempty" example:"registration"`
		AgentID      string   `json:"agent_id" example:"resume-tailor"`
		Capabilities []string `json:"capabilities,omitempty" example:"[\"send_mail\"]"`
		TrustLevel   string   `json:"trust_level,omitempty" doc:"a person grants a higher one" example:"standard"`
		Metadata     wire.Raw `json:"metadata,omitempty"`
	}
	// HeartbeatDocument is the body of POST /amp/heartbeat.
	HeartbeatDocument struct {
		Version  string   `json:"amp_version" example:"2.0"`
		Type     string   `json:"type,omitempty" example:"heartbeat"`
		AgentID  string   `json:"agent_id" example:"resume-tailor"`
		RunID    string   `json:"run_id" example:"run_01jt4k"`
		TTL      int64    `json:"ttl_s,omitempty" doc:"seconds until the next heartbeat at the latest" example:"60"`
		Status   string   `json:"status,omitempty"`
		Summary  string   `json:"summary,omitempty" example:"Reading the third posting"`
		Metadata wire.Raw `json:"metadata,omitempty"`
	}
	// ReceiptDocument is the body of POST /amp/receipt.
	ReceiptDocument struct {
		Version   string     `json:"amp_version" example:"3.0"`
		Type      string     `json:"type,omitempty" example:"action_receipt"`
		AgentID   string     `json:"agent_id" example:"resume-tailor"`
		GateID    string     `json:"gate_id" doc:"the gate that approved the action" example:"gate_01jt4k"`
		Status    string     `json:"status" doc:"succeeded or failed" example:"succeeded"`
		Summary   string     `json:"summary,omitempty" example:"Sent to 1 applicant"`
		Artifacts []wire.Raw `json:"artifacts,omitempty"`
		Metadata  wire.Raw   `json:"metadata,omitempty"`
	}
)

// documents are the descriptions by type of message.
var documents = map[Type]any{
	Completion: SignalDocument{}, GateRequest: GateRequestDocument{}, Failure: FailureDocument{},
	Registration: RegistrationDocument{}, Heartbeat: HeartbeatDocument{}, Receipt: ReceiptDocument{},
}
