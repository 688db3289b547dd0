package policy

import "slices"

// Point is a control point: a place where an agent's request waits for a verdict.
type Point string

// The control points. Every protocol maps what it sees to one of them.
const (
	OnSignal       Point = "signal"       // an agent reports and proposes what is next
	OnAction       Point = "action"       // an agent is about to do something
	OnPrompt       Point = "prompt"       // a prompt is about to reach a model
	OnToolCall     Point = "tool_call"    // a model asked for a tool
	OnMessage      Point = "message"      // a message is about to be routed
	OnTask         Point = "task"         // a task is about to be dispatched
	OnIdle         Point = "idle"         // an agent has nothing to do
	OnIntent       Point = "intent"       // what a prompt is meant to achieve
	OnContext      Point = "context"      // an agent asks for context
	OnMemory       Point = "memory"       // an agent asks for what is remembered
	OnPlanning     Point = "planning"     // an agent asks how to plan
	OnReasoning    Point = "reasoning"    // an agent asks how to reason
	OnRateLimit    Point = "rate_limit"   // an agent met a limit
	OnConfirmation Point = "confirmation" // an agent asks for a yes
	OnQuery        Point = "query"        // an agent asks a question
)

// Points lists the control points in the order in which they are documented.
var Points = []Point{
	OnSignal, OnAction, OnPrompt, OnToolCall, OnMessage, OnTask,
	OnIdle, OnIntent, OnContext, OnMemory, OnPlanning, OnReasoning, OnRateLimit, OnConfirmation, OnQuery,
}

// Tier is who waits for the answer to a request: what a person at a terminal may do a hundred times an hour is
// another matter in a program that nobody watches.
type Tier string

// The tiers.
const (
	Interactive Tier = "interactive" // an agent's own session, which asks through its hooks
	Subagent    Tier = "subagent"    // an agent that such a session has started
	Background  Tier = "background"  // a session of a run that Signalbox supervises
	API         Tier = "api"         // a program: the proxy, signals, mail, tasks
)

// modifiable are the points where a rule may say modify. A signal and a message are kept as
// they were sent, since somebody signed them or answers for them; the others have no form of
// answer for a changed payload. A protocol that cannot carry a change out (the proxy, tasks)
// refuses instead.
var modifiable = []Point{OnAction, OnPrompt, OnToolCall, OnTask, OnContext, OnPlanning}

// hinting are the points where an allow may carry hints in set.
var hinting = []Point{OnIntent, OnContext, OnMemory, OnPlanning, OnReasoning}

// defaultAction is the verdict at a point for which neither a rule nor the policy's defaults
// say anything. An agent that asks for a confirmation wants a person's.
func (p Point) defaultAction() Action {
	if p == OnConfirmation {
		return Gate
	}
	return Allow
}

func (p Point) in(points []Point) bool { return slices.Contains(points, p) }

// PointNames are the names of all points.
func PointNames() []string { return pointNames(Points) }

func pointNames(points []Point) []string {
	names := make([]string, len(points))
	for i, p := range points {
		names[i] = string(p)
	}
	return names
}
