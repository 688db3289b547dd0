package fault

// Code is a stable word that programs may switch on. A code that was released is never renamed
// and never gets another meaning.
type Code string

// The codes. Each has a row in Catalogue, with its meaning and its HTTP status; a test keeps
// the two together.
const (
	InvalidPayload     Code = "invalid_payload"
	InvalidRequest     Code = "invalid_request"
	InvalidConfig      Code = "invalid_config"
	InvalidPolicy      Code = "invalid_policy"
	InvalidTarget      Code = "invalid_target"
	Unauthenticated    Code = "unauthenticated"
	Forbidden          Code = "forbidden"
	NotFound           Code = "not_found"
	MethodNotAllowed   Code = "method_not_allowed"
	AlreadyExists      Code = "already_exists"
	Conflict           Code = "conflict"
	AgentScope         Code = "agent_scope"
	AgentsProcess      Code = "agents_process"
	DuplicateRun       Code = "duplicate_run_id"
	AlreadyResolved    Code = "already_resolved"
	NotWhatWasShown    Code = "not_what_was_shown"
	NotAllShown        Code = "not_all_shown"
	PresenceRequired   Code = "presence_required"
	PresenceInvalid    Code = "presence_invalid"
	TooLarge           Code = "too_large"
	UnsupportedMedia   Code = "unsupported_media_type"
	Cancelled          Code = "cancelled"
	Internal           Code = "internal"
	StoreUnavailable   Code = "store_unavailable"
	StoreFull          Code = "store_full"
	StoreReadOnly      Code = "store_read_only"
	SchemaNewer        Code = "schema_newer"
	OutcomeUnknown     Code = "outcome_unknown"
	LedgerMismatch     Code = "ledger_mismatch"
	StateMismatch      Code = "state_mismatch"
	UnrecordedWrite    Code = "unrecorded_write"
	VerificationFailed Code = "verification_failed"
	Stopping           Code = "stopping"
	Overloaded         Code = "overloaded"
	RateLimited        Code = "rate_limited"

	// Of the messaging protocol, which has words of its own.
	MissingField            Code = "missing_field"
	InvalidField            Code = "invalid_field"
	TenantDenied            Code = "tenant_access_denied"
	SignatureInvalid        Code = "signature_invalid"
	SignatureMissing        Code = "signature_missing"
	KeyRevoked              Code = "key_revoked"
	AgentSuspended          Code = "agent_suspended"
	RecipientSuspended      Code = "recipient_suspended"
	RecipientNotAllowed     Code = "recipient_not_allowed"
	ExternalProvider        Code = "external_provider"
	HostUnavailable         Code = "host_unavailable"
	ScannerUnavailable      Code = "scanner_unavailable"
	NameTaken               Code = "name_taken"
	KeyAlreadyRegistered    Code = "key_already_registered"
	DuplicateIdempotencyKey Code = "duplicate_idempotency_key"
	TooManyAttachments      Code = "too_many_attachments"
	AttachmentNotFound      Code = "attachment_not_found"
	AttachmentPending       Code = "attachment_pending"
	AttachmentUsed          Code = "attachment_already_used"
	AttachmentExpired       Code = "attachment_expired"
	AttachmentTooLarge      Code = "attachment_too_large"
	AttachmentRejected      Code = "attachment_rejected"
	InvalidDigest           Code = "invalid_digest_algorithm"
	MissingHeader           Code = "missing_header"
	TimestampFuture         Code = "timestamp_future"
	TimestampExpired        Code = "timestamp_expired"
	ProviderNotTrusted      Code = "provider_not_trusted"
	KeyConflict             Code = "key_conflict"
	DuplicateMessage        Code = "duplicate_message"
	QuarantineExpired       Code = "quarantine_expired"
)

// Meaning is a row of the catalogue: what a code means and its HTTP status. Text is what
// docs/errors.md says: what happened, and whether anything was changed.
type Meaning struct {
	Code   Code
	Status int
	Text   string
}

// Catalogue lists every code. docs/errors.md is generated from it.
var Catalogue = []Meaning{
	{
		InvalidPayload, 400,
		"The body is not what the call takes. `field` or `details.fields` says where; the " +
			"message says what a right value looks like.",
	},
	{InvalidRequest, 400, "A part of the address or the query is wrong."},
	{InvalidConfig, 400, "A configuration key or value is wrong. Nothing was changed."},
	{InvalidPolicy, 400, "The policy or its test file is wrong. `details.problems` lists every place, with line, column " +
		"and what was meant. The policy in force stays."},
	{InvalidTarget, 400, "The address cannot be delivered to: it is not http or https, carries a password, or belongs " +
		"to a network that is not public and that the allow list does not name."},
	{Unauthenticated, 401, "The call carries no key, or one that is unknown, revoked or past its grace period."},
	{Forbidden, 403, "The key is good, but may not do this."},
	{NotFound, 404, "There is nothing under that name in what the key may see."},
	{MethodNotAllowed, 405, "The address exists, but not for this method; the `Allow` header lists those it has."},
	{AlreadyExists, 409, "The name is taken. Nothing was changed."},
	{Conflict, 409, "The thing is not in a state that allows this. Nothing was changed."},
	{AgentScope, 403, "The key belongs to another agent than the one that the body names."},
	{AgentsProcess, 403, "The call comes from the process of an agent, or from one that cannot be told apart from it, and " +
		"takes an operator. Nothing was changed, and an alarm was raised. A person makes the call from a terminal or a " +
		"browser that no agent has started."},
	{DuplicateRun, 409, "The run was signalled already, with other content. What was received first stays as it is."},
	{AlreadyResolved, 409, "Somebody was first: the gate is decided, and stays so. `details` says by whom."},
	{NotWhatWasShown, 409, "The vote names the digest of something else than the gate is now. `details.differs` says " +
		"what differs, `details.digest` is that of the gate. Nothing was changed; show the gate again, and decide."},
	{NotAllShown, 409, "The gate shows only the beginning of what is decided, and the approval does not say so. " +
		"`details.unshown` lists what is not shown, `details.unseen` is the number that an approval names. Nothing was " +
		"changed; download the rest, or approve it unseen."},
	{PresenceRequired, 403, "This takes the signature of a passkey, which people give in a browser; the message has the " +
		"address. Nothing was changed."},
	{PresenceInvalid, 403, "The signature is not one of an enrolled passkey of the caller over exactly this, or is that " +
		"of a copy. Nothing was changed."},
	{TooLarge, 413, "The body is over the limit that the message names."},
	{UnsupportedMedia, 415, "The body is of a type that the call does not take."},
	{Cancelled, 499, "The caller went away before the work began. Nothing was changed."},
	{Internal, 500, "A mistake of ours. The log has the cause, under the id in the `X-Request-Id` header."},
	{
		UnrecordedWrite, 500,
		"Code tried to change state without an entry in the ledger. A mistake of ours; nothing was changed.",
	},
	{VerificationFailed, 422, "An export, a proof or a checkpoint does not verify."},
	{StoreUnavailable, 503, "The database cannot be reached. Nothing was changed; try again."},
	{StoreFull, 503, "The disk is full. Nothing was changed; writes work again as soon as there is room."},
	{StoreReadOnly, 503, "The data folder or the database cannot be written to. Nothing was changed."},
	{
		SchemaNewer, 503,
		"The database was made by a newer Signalbox. Run that version, or restore a backup made before the upgrade.",
	},
	{
		OutcomeUnknown, 503,
		"The database went away while it was committing, and has not come back to say " +
			"whether it did. `details` says where to look.",
	},
	{
		LedgerMismatch, 503,
		"The ledger in the database is not the one that was signed. Writes are " +
			"refused until an operator has looked into it.",
	},
	{
		StateMismatch, 503,
		"A table in the database is not what the ledger says: somebody has changed it by hand. What it says counts for " +
			"nothing until `signalbox ledger rebuild` has repaired it; `details.table` names it.",
	},
	{Stopping, 503, "The server is stopping. Nothing was changed; try again."},
	{Overloaded, 429, "Too many writes are waiting. Nothing was changed; try again."},
	{RateLimited, 429, "The agent has used up what it may ask for in a minute. Nothing was changed; try again after the " +
		"seconds in the `Retry-After` header, which are in `details.retry_after` too."},
	{MissingField, 400, "A field that has to be there is not; `field` names it."},
	{
		InvalidField, 400,
		"A field is of a wrong type, form or length; `field` names it, and the message says what a right value looks like.",
	},
	{TenantDenied, 403, "The agent may not be registered in that tenant with what the call carries."},
	{
		SignatureInvalid, 403,
		"The signature is not one of the sender's registered key over this message. Nothing was stored.",
	},
	{SignatureMissing, 422, "This server takes signed messages only."},
	{KeyRevoked, 403, "The public key was revoked or replaced, and is not taken again."},
	{AgentSuspended, 403, "The agent is suspended. Its queue is kept."},
	{RecipientSuspended, 403, "The recipient is suspended, and gets no mail."},
	{RecipientNotAllowed, 403, "The sender's own communication policy does not name the recipient."},
	{ExternalProvider, 422, "The recipient belongs to another provider, which this server does not send to."},
	{
		HostUnavailable, 503,
		"The recipient may be on another host of this provider, which does not answer. Send the message again later.",
	},
	{
		ScannerUnavailable, 503,
		"The virus scanner that is configured does not answer, and what was not scanned is " +
			"not sent. Confirm the attachment again later.",
	},
	{NameTaken, 409, "The name is taken in that tenant; `suggestions` has some that are free."},
	{KeyAlreadyRegistered, 409, "The public key is or was that of another agent."},
	{DuplicateIdempotencyKey, 409, "The idempotency key was used before, with another body. What was sent first stays."},
	{QuarantineExpired, 410, "The message was in quarantine for longer than it is kept there, and was rejected."},
	{TooManyAttachments, 400, "A message takes ten attachments at the most."},
	{AttachmentNotFound, 404, "There is no attachment with that id among those that the caller may see."},
	{
		AttachmentPending, 409,
		"The attachment was not uploaded, not confirmed, or not scanned yet. Ask for its " +
			"status, and send the message when it is there.",
	},
	{AttachmentUsed, 409, "The attachment belongs to another message, or was uploaded already. Upload a new copy."},
	{AttachmentExpired, 410, "The attachment or its upload address is past its time. Upload it again."},
	{AttachmentTooLarge, 413, "A file has 25 MiB at the most, and those of one message 100 MiB."},
	{AttachmentRejected, 422, "The attachment did not pass the scan. Send the message without it."},
	{InvalidDigest, 422, "The digest of an attachment is sha256: and 64 hex digits."},
	{MissingHeader, 400, "A header that has to be there is not; the message names it."},
	{TimestampFuture, 400, "The time of a message is more than a minute ahead of ours."},
	{TimestampExpired, 400, "The time of a message is more than five minutes past."},
	{ProviderNotTrusted, 403, "The other provider is not one that this server exchanges mail with."},
	{KeyConflict, 409, "The sender was known by another public key, and nobody has said that it was replaced."},
	{DuplicateMessage, 409, "A message with that id came before."},
}

// Status is the HTTP status of a code, 500 for one that is not in the catalogue.
func (c Code) Status() int {
	for _, m := range Catalogue {
		if m.Code == c {
			return m.Status
		}
	}
	return 500
}
