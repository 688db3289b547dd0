package shape

// The shapes of everything that AHP 2.4 fixes, in its own spelling. They are data: req
// is a member that must be there, opt one that may be absent or null, dflt one that may
// be absent but not null (AHP-28). Members that a shape does not name are ignored
// (AHP-7).

var (
	u32, u64, i32, i64 = whole(32), whole(64), signed(32), signed(64)

	fact = object(req("content", text), req("source", text), req("confidence", number))

	// EventMembers are those of the envelope of an event. timestamp is any text: the reference server
	// does not parse it.
	EventMembers = []Member{
		req("event_type", text), req("session_id", text), req("agent_id", text), req("timestamp", text),
		req("depth", u32), req("payload", free), opt("context", eventContext), opt("metadata", dict),
	}
	eventContext = object(
		opt("recent_facts", list(fact)),
		opt("memory_summary", object(req("memory_type", text), req("total_items", u64), req("recent_topics", list(text)))),
		opt("session_stats",
			object(req("total_actions", u64), req("total_tokens", i32), req("duration_ms", u64), req("error_count", u64))),
		opt("current_task", text), opt("capabilities", dict),
	)

	// HandshakeParams are the params of ahp/handshake.
	HandshakeParams = []Member{
		req("protocol_version", text),
		req("agent_info", object(req("framework", text), req("version", text), req("capabilities", list(text)))),
		req("session_id", text), req("agent_id", text),
	}
	// QueryParams are the params of ahp/query.
	QueryParams = []Member{req("session_id", text), req("agent_id", text), req("query_type", text), req("payload", free)}
	// BatchParams are the params of ahp/batch.
	BatchParams = []Member{req("events", list(free))}
)

// Shapes that several payloads share.
var (
	intents = word("recognize", "understand", "locate", "retrieve", "explore", "reason", "validate", "compare", "track")

	// A strategy may be a text of the agent's own, as {"custom": "…"}; the bare word
	// "custom" is wrong.
	strategy  = wordOr("custom", "none", "step_by_step", "tree_of_thoughts", "graph_planning")
	timeRange = object(opt("from", i64), opt("to", i64), opt("relative", text))
	target    = oneKey(map[string]Shape{
		"entity":   object(req("name", text), req("entity_type", text), opt("identifier", text)),
		"location": object(req("path", text), req("location_type", text)),
		"event":    object(req("description", text), req("event_type", text), opt("time_range", timeRange)),
		"relation": object(req("entities", list(text)), req("relation_type", text)),
		"rule":     object(req("name", text), req("rule_type", text), opt("scope", text)),
		"state":    object(req("target", text), req("aspect", text), req("include_history", flag)),
		"resource": object(req("name", text), req("resource_type", text), opt("constraints", free)),
		"pattern":  object(req("pattern", text), req("pattern_type", text)),
	})
)

// Payloads of events with typed decisions. They are checked before the policy is asked
// (AHP-26).
var (
	IdlePayload = object(req("idle_duration_ms", u64), req("idle_reason", text), opt("last_event_type", text),
		opt("suggested_action", text))
	IntentPayload = object(req("session_id", text), req("prompt", text), req("workspace", text),
		opt("language_hint", text))

	ContextPayload = object(
		req("session_id", text), req("intent", intents), req("target", target),
		req("context", object(
			req("workspace", text), opt("current_task", text), opt("query", text),
			opt("relevant_history", list(object(req("item_type", text), req("content", text), req("timestamp", i64)))),
		)),
		dflt("domain", word("coding", "writing", "data_analysis", "research", "project_management", "conversation",
			"operations", "security", "general")),
		dflt("preferred_modality",
			word("text", "code", "structured_data", "table", "chart", "image", "audio", "video", "any")),
		dflt("urgency", word("critical", "high", "normal", "low")),
		dflt("freshness", word("realtime", "recent", "static")),
		dflt("constraints", object(opt("max_results", u64), opt("max_context_length", u64), dflt("include_sources", flag))),
		opt("metadata", dict),
	)
	MemoryPayload = object(req("session_id", text), req("query", text), req("memory_type", text),
		req("max_results", u64), req("working_directory", text))
	PlanningPayload = object(req("session_id", text), req("task_description", text),
		req("available_strategies", list(strategy)), opt("constraints", free))
	ReasoningPayload = object(
		req("session_id", text),
		req("reasoning_type", wordOr("other", "chain_of_thought", "tree_of_thoughts", "re_act", "reflexion")),
		req("problem_statement", text), opt("hints", list(text)),
	)
	RateLimitPayload = object(
		req("session_id", text),
		req("limit_type",
			wordOr("custom", "llm_token_limit", "llm_request_limit", "api_request_limit", "tool_execution_limit")),
		req("retry_after_ms", u64), req("current_usage", text),
	)
	ConfirmationPayload = object(
		req("session_id", text), req("confirmation_type", wordOr("custom", "safety_confirm", "user_confirm", "cost_confirm")),
		req("message", text), opt("options", list(text)),
	)
)

// Payloads of the runtime contracts: notifications that people see, and that are
// therefore checked although nobody waits for an answer (AHP-27).
var (
	artifact = object(
		req("id", text), opt("kind", text), opt("uri", text), opt("path", text), opt("mime_type", text), opt("sha256", text),
		opt("size_bytes", u64), opt("summary", text),
	)
	evidence   = object(req("kind", text), req("summary", text), opt("artifact", artifact), opt("metadata", dict))
	verdict    = word("pending", "running", "passed", "failed", "skipped", "needs_review")
	RunPayload = object(
		req("run_id", text), req("session_id", text),
		req("status", word("created", "planning", "executing", "verifying", "completed", "failed", "cancelled")),
		opt("prompt", text), opt("result_summary", text), opt("error", text), opt("started_at", text),
		req("updated_at", text), opt("metadata", dict),
	)
	TaskListPayload = object(
		req("run_id", text), req("session_id", text),
		req("tasks", list(object(
			req("id", text), req("title", text),
			req("status", word("pending", "in_progress", "completed", "failed", "skipped", "cancelled")),
			dflt("depends_on", list(text)), dflt("evidence", list(evidence)), dflt("artifacts", list(artifact)),
			opt("error", text), opt("updated_at", text), opt("metadata", dict),
		))),
		req("updated_at", text), opt("metadata", dict),
	)
	VerificationPayload = object(
		req("run_id", text), req("session_id", text), req("status", verdict),
		dflt("checks", list(object(
			req("id", text), req("subject", text), req("status", verdict), opt("command", text), opt("message", text),
			dflt("evidence", list(evidence)), dflt("artifacts", list(artifact)), opt("metadata", dict),
		))),
		dflt("residual_risks", list(text)), req("updated_at", text), opt("metadata", dict),
	)
)

// Decisions, by their word. Only decisions that somebody else made are checked against
// these: an external handler's, or those with members that a rule sets (AHP-38).
var (
	reasoned = object(req("reason", text), opt("metadata", dict))
	plain    = object()

	GenericAnswers = map[string]Shape{
		"allow":    object(opt("metadata", dict)),
		"block":    reasoned,
		"modify":   object(req("modified_payload", free), opt("metadata", dict)),
		"defer":    object(req("retry_after_ms", u64), opt("reason", text)),
		"escalate": object(req("reason", text), opt("escalation_target", text)),
	}
	// Words and members of each type of event.
	IdleAnswers   = map[string]Shape{"allow": plain, "defer": object(opt("reason", text))}
	IntentAnswers = map[string]Shape{
		"allow": object(req("detected_intent", text), req("confidence", number),
			opt("target_hints", object(opt("target_type", text), opt("target_name", text), opt("domain", text)))),
		"block": object(req("reason", text)),
	}
	injected = object(
		req("facts", list(fact)),
		opt("file_contents", list(object(req("path", text), req("snippet", text), req("relevance_score", number)))),
		opt("project_summary",
			object(req("project_name", text), opt("language", text), opt("key_files", list(text)),
				req("structure_description", text))),
		opt("knowledge", list(text)), opt("suggestions", list(text)),
	)
	ContextAnswers = map[string]Shape{
		"allow":  object(req("injected_context", injected), opt("metadata", dict)),
		"block":  reasoned,
		"refine": object(opt("refined_intent", intents), opt("refined_target", target), req("scope_hints", list(text))),
	}
	MemoryAnswers = map[string]Shape{
		"allow": object(req("injected_facts", list(fact)), opt("metadata", dict)),
		"block": reasoned,
	}
	PlanningAnswers = map[string]Shape{
		"allow":  object(req("selected_strategy", strategy), opt("planning_template", free), opt("metadata", dict)),
		"block":  reasoned,
		"modify": object(req("modified_task", text), opt("hints", list(text))),
	}
	ReasoningAnswers = map[string]Shape{
		"allow": object(opt("hints", list(text)), opt("metadata", dict)),
		"block": reasoned,
	}
	RateLimitAnswers = map[string]Shape{
		"retry": object(req("retry_after_ms", u64), opt("metadata", dict)),
		"queue": plain, "skip": object(req("reason", text)),
	}
	ConfirmationAnswers = map[string]Shape{"escalate": plain, "approve": plain, "reject": object(req("reason", text))}
)
