// Package policy decides: rules in, verdict out.
//
// It owns the language of rules, their order and what happens when one cannot be
// evaluated. It knows no protocol, no storage and no clock: an Input holds everything
// that a decision depends on, so the same Input and the same Policy give the same
// Verdict, today and when it is replayed. A Policy does not change once it was parsed;
// everything is safe for concurrent use. Of our packages it imports fault alone, and it
// is the only one that imports CEL.
//
// docs/policy.md is the page for people who write rules. What it lists (points, fields,
// counters, functions, keys) is what Points, schema.go, functions.go and rule.go define:
// change both together.
//
// # A policy
//
//	version: 1
//	defaults: {signal: allow, tool_call: block}
//	rules:
//	  - name: send-needs-a-person
//	    on: [signal]
//	    when: event.proposed_action.matches("(?i)send|publish")
//	    then: gate
//	    gate: {expires: 30m, approvers: [operator], quorum: 1}
//
// Rules are tried in the order of the file, and the first that matches decides; one
// without when matches always. If none does, the default of the control point decides:
// allow where nothing is said, gate for confirmation. Rules are compiled once and indexed
// by control point, and those that want a certain tool, agent or the like by that. A rule
// with mode: shadow never decides; what it would have done is in Verdict.Shadow. The section budgets
// has rules made of a few words, which are tried first: see budgets.go.
//
// then is allow, block, modify (with set, a merge patch for the payload: see Merge),
// defer (with retry_after, 30s if not said) or gate (with gate: expires, on_expiry,
// approvers, quorum, reject_needs, remind_after, escalation, even_if_undeclared, uses,
// good_for, risk: see GateSpec). set may also stand with allow on intent, context,
// memory, planning and reasoning, where it holds hints. A signal and a message cannot be
// modified. A policy with anything that is not known, does not fit or does not compile
// is refused as a whole, with every problem and its place.
//
// # What rules see
//
// event, whichever protocol it came through:
//
//	point, protocol, kind        where it waits; which protocol; the protocol's own name for it
//	tool, toolset, arguments     the tool, what it belongs to, and what it is called with
//	command, path, cwd           what the tool would run or touch, and where
//	url, host                    what it would call
//	text                         the prompt, or the body of the message
//	payload, metadata, artifacts what came, as data
//	tools                        the tools that a model may call, by name
//	summary, proposed_action     what a signal says was done and is next
//	declared                     whether the agent itself asks for a gate
//	model, provider, max_tokens  which model, whose, and how much it may answer
//	estimate_usd, estimate_tokens what a call may take at most
//	unpriced                     nobody knows what the model costs
//	project, status              the deck; completed, failed or interrupted
//	cost_usd, tokens, input_tokens, output_tokens
//	session, run, task, trace    what it belongs to
//	depth, attempt               how many agents deep; which try
//	to, from, subject, thread, priority, external
//	                             of a message; external: it leaves this provider
//	query_type                   what kind of question a query asks
//	tier                         interactive, subagent, background or api: who waits for the answer
//
// agent (name, address, workspace, trust, labels, suspended) is who did it, as the
// roster knows it. recent counts what that agent did: recent.actions("10m"), and so
// prompts, tool_calls, signals, messages, tasks, allowed, blocks, defers, gates,
// rejections, tokens, and cost in dollars. now is the time of the decision.
//
// Functions are CEL's own and lowerAscii, trim, split and join. A field that is not
// there does not compile, nor does a comparison of different types; an expression must
// be a boolean, a pattern a literal, and a window a literal from 1s to 31d, or hour, day or month. All rules
// together read at most 100 counters, a counter being a function and a window.
//
// # What is absent
//
// An absent field is an empty value and never an error. Fields of event and agent have
// types, so they are simply "", 0, false or empty. In data (arguments, payload,
// metadata, artifacts, labels, and what is inside of them) null is the same as absent,
// and:
//
//   - A member of something absent is absent, and so is an item past a list's end.
//   - Where a type is wanted, absent is its empty value: a.startsWith("x") is false,
//     a && b takes it as false, a.exists(…) goes over nothing, size(a) is 0.
//   - Where it meets another value it is the empty value of that one's type: a > 100 is
//     false, a < 100 is true, a == "" and a == 0 and a == false are true. Two absent
//     values are equal.
//   - has(a.b) tells absent from empty, as does a.b == null. has(event.x) is false for
//     a field of event that is empty.
//
// Data that is there but of the wrong type is an error: event.payload.amount > 100 when
// the amount is "lots", or a member of a text. JSON does not tell 3 from 3.0: numbers in
// data mix with whole and other numbers, 3 / 2 is 1.5, and dividing by zero is an error.
//
// CEL itself would fail on what is absent. The expression is rewritten after it was
// checked (see rewriter), so what runs is an ordinary CEL program.
//
// # When a rule fails
//
// A division by zero, a wrong type at run time, a cost over RunLimit, a context that
// ended, a panic: the verdict is block, with Failed, the rule's name and the reason.
// As in CEL, false && error is false and true || error is true, in either order: an
// error matters when the outcome depends on it.
//
// The cost of a rule is estimated when it is compiled, for texts of 64 KiB and lists of
// 1,000 items; over CostLimit it is refused. Rules with a loop over data are counted
// again while they run, and stop at RunLimit or when the context ends. Rules without
// one look at each character of the input a fixed number of times and are not counted:
// the caller bounds what it reads.
package policy
