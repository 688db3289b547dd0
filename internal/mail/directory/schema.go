package directory

import "signalbox/internal/wire"

// The documents of the directory as /openapi.json describes them. parseRegistration and change read them.
type (
	// RegisterDocument is the body of POST /v1/register.
	RegisterDocument struct {
		Name             string        `json:"name" doc:"letters, digits, hyphens and underscores" example:"my-agent"`
		Tenant           string        `json:"tenant,omitempty" doc:"the workspace" example:"default"`
		PublicKey        string        `json:"public_key" doc:"an Ed25519 key as PEM"`
		KeyAlgorithm     string        `json:"key_algorithm" example:"Ed25519"`
		InviteCode       string        `json:"invite_code,omitempty"`
		Alias            string        `json:"alias,omitempty" example:"The tester"`
		Scope            *ScopeFields  `json:"scope,omitempty"`
		Delivery         *DeliveryForm `json:"delivery,omitempty"`
		Capabilities     []string      `json:"capabilities,omitempty"`
		Metadata         wire.Raw      `json:"metadata,omitempty"`
		RequireSignature bool          `json:"require_signature,omitempty" doc:"the server takes only what the agent signs"`
	}
	// ScopeFields narrow a name to a repository and a platform.
	ScopeFields struct {
		Repo     string `json:"repo,omitempty"`
		Platform string `json:"platform,omitempty"`
	}
	// DeliveryForm says how an agent gets its mail beside fetching it.
	DeliveryForm struct {
		WebhookURL      string `json:"webhook_url,omitempty" doc:"https"`
		WebhookSecret   string `json:"webhook_secret,omitempty"`
		PreferWebsocket *bool  `json:"prefer_websocket,omitempty"`
	}
	// ProfileDocument is the body of PATCH /v1/agents/me. What it does not mention stays.
	ProfileDocument struct {
		Alias            string               `json:"alias,omitempty" example:"The tester"`
		Delivery         *DeliveryForm        `json:"delivery,omitempty"`
		Capabilities     []string             `json:"capabilities,omitempty" example:"[\"run_tests\"]"`
		Metadata         wire.Raw             `json:"metadata,omitempty"`
		Policy           *CommunicationPolicy `json:"communication_policy,omitempty"`
		RequireSignature bool                 `json:"require_signature,omitempty" doc:"true, with a proof; an operator lifts it"`
		Proof            string               `json:"proof,omitempty" doc:"a signature over the demand, in base64"`
		ProofTimestamp   int64                `json:"proof_timestamp,omitempty" doc:"the time in it, in seconds"`
	}
	// RotateDocument is the body of POST /v1/auth/rotate-keys.
	RotateDocument struct {
		NewPublicKey string `json:"new_public_key" doc:"an Ed25519 key as PEM"`
		KeyAlgorithm string `json:"key_algorithm,omitempty" example:"Ed25519"`
		Proof        string `json:"proof" doc:"a signature of the current key over the new one, in base64"`
	}
	// SuspendDocument is the body of POST /v1/agents/{id}/suspend, which may be absent.
	SuspendDocument struct {
		Reason        string  `json:"reason,omitempty" example:"It repeats itself"`
		DurationHours float64 `json:"duration_hours,omitempty" example:"24"`
	}
)
