package harness

import (
	"context"
	"slices"
	"strings"

	"signalbox/internal/harness/knowledge"
	"signalbox/internal/harness/shape"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// allowedAnswer answers an event that the policy allows. Context and memory come from
// the workspace's knowledge and the session's own notifications, an intent from the
// words of the prompt; every other type gets a plain permission (AHP-39).
func (h *Harness) allowedAnswer(ctx context.Context, who roster.Identity, e *Event, v policy.Verdict) (Answer, error) {
	switch e.Type {
	case ContextPerception:
		return h.gatherContext(ctx, who, e)
	case MemoryRecall:
		var in struct {
			Query  string `json:"query"`
			Memory string `json:"memory_type"`
			Most   uint64 `json:"max_results"`
		}
		if err := wire.UnmarshalPart(e.Payload, &in); err != nil {
			return Answer{}, err
		}
		facts, err := h.recallFacts(ctx, who, e, in.Query, in.Memory, int(min(in.Most, knowledge.MaxFound)))
		return Answer{Decision: "allow", InjectedFacts: facts}, err
	case IntentDetection:
		return detectIntent(e.text("prompt"), v), nil
	default:
		return permission(e), nil
	}
}

// defaultFound is how many facts and snippets a client gets that does not say how many.
const defaultFound = 10

// gatherContext answers context_perception. Knowledge of operators comes first; what is
// left of the client's limits goes to the session's own notifications. Both limits are
// the client's wish, capped by ours.
func (h *Harness) gatherContext(ctx context.Context, who roster.Identity, e *Event) (Answer, error) {
	var in struct {
		Target  wire.Raw `json:"target"`
		Context struct {
			Query string `json:"query"`
			Task  string `json:"current_task"`
		} `json:"context"`
		Constraints struct {
			Results *uint64 `json:"max_results"`
			Length  *uint64 `json:"max_context_length"`
			Sources *bool   `json:"include_sources"`
		} `json:"constraints"`
	}
	if err := wire.UnmarshalPart(e.Payload, &in); err != nil {
		return Answer{}, err
	}
	most, room := defaultFound, 1<<20
	if n := in.Constraints.Results; n != nil {
		most = int(min(*n, knowledge.MaxFound))
	}
	if n := in.Constraints.Length; n != nil {
		room = int(min(*n, 1<<20))
	}
	question := strings.Join([]string{in.Context.Query, in.Context.Task, joinTexts(in.Target)}, " ")
	found, err := h.Knowledge.Search(ctx, who.Workspace, question, most)
	if err != nil {
		return Answer{}, err
	}
	out := &shape.Injected{Facts: []shape.Fact{}}
	// The best come first, so the first that does not fit ends it: a worse one that happens
	// to be short should not take its place.
	for _, k := range found {
		if room -= len(k.Content); room < 0 {
			break
		}
		source := k.Source
		if in.Constraints.Sources != nil && !*in.Constraints.Sources {
			source = ""
		}
		if k.Path != "" {
			out.FileContents = append(out.FileContents, shape.File{Path: k.Path, Snippet: k.Content, Relevance: k.Score})
		} else {
			out.Facts = append(out.Facts, shape.Fact{Content: k.Content, Source: source, Confidence: k.Confidence})
		}
	}
	if left := most - len(found); left > 0 && room > 0 {
		own, err := h.searchSession(ctx, who, e, question, left)
		if err != nil {
			return Answer{}, err
		}
		for _, f := range own {
			if room -= len(f.Content); room >= 0 {
				out.Facts = append(out.Facts, f)
			}
		}
	}
	return Answer{Decision: "allow", InjectedContext: out}, nil
}

// joinTexts joins all strings inside a value, in an order that does not change from run to
// run.
func joinTexts(raw wire.Raw) string {
	var value any
	if raw == nil || policy.DecodeData(raw, &value) != nil {
		return ""
	}
	var out []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, item := range v {
				walk(item)
			}
		case map[string]any:
			for _, name := range sortedNames(v) {
				walk(v[name])
			}
		}
	}
	walk(value)
	return strings.Join(out, " ")
}

// sortedNames are the names of an object in byte order.
func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The two kinds of memory. AHP leaves memory_type free; any other word searches both.
const (
	semantic = "semantic" // what operators know
	episodic = "episodic" // what happened in the session
)

// recallFacts finds at most so many facts about a question in one kind of memory, or in
// both.
func (h *Harness) recallFacts(ctx context.Context, who roster.Identity, e *Event, question, memory string,
	most int,
) ([]shape.Fact, error) {
	facts := []shape.Fact{}
	if memory != episodic {
		found, err := h.Knowledge.Search(ctx, who.Workspace, question, most)
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			source := k.Source
			if source == "" {
				source = k.Path
			}
			facts = append(facts, shape.Fact{Content: k.Content, Source: source, Confidence: k.Confidence})
		}
	}
	if memory == semantic || len(facts) >= most {
		return facts, nil
	}
	own, err := h.searchSession(ctx, who, e, question, most-len(facts))
	return append(facts, own...), err
}

const (
	// maxRemembered and maxRememberedBytes bound how far back a session's entries are
	// searched: this happens while an agent waits.
	maxRemembered      = 64
	maxRememberedBytes = 4 << 20
	// maxMemory is how many bytes of one event a fact holds.
	maxMemory = 2000
)

// memory is a fact from a session's own events, with how many words of the question it
// has.
type memory struct {
	fact shape.Fact
	hits int
}

// searchSession searches the session's own notifications for the words of a question,
// best first. An agent said it, so its confidence is one half. It reads only the trace
// of this agent and session, so nothing leaks between agents.
func (h *Harness) searchSession(ctx context.Context, who roster.Identity, e *Event, question string, most int) ([]shape.Fact,
	error,
) {
	key, words := keyOf(e.Session), knowledge.Keywords(question)
	var all []memory
	q := ledger.Query{Trace: traceOf(who.ID, key), Kinds: []string{kindNoted, kindReported}, Limit: maxRemembered}
	_, _, err := h.core.Ledger.WalkBack(ctx, q, maxRememberedBytes, func(entry *ledger.Entry) error {
		if entry.Body == nil {
			return nil // it was erased
		}
		var b notes
		if err := entry.Decode(&b); err != nil {
			return err
		}
		for _, n := range slices.Backward(b.Notes) {
			if m := n.matchWords(key, words); m.hits > 0 {
				all = append(all, m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b memory) int { return b.hits - a.hits })
	facts := []shape.Fact{}
	for _, m := range all[:min(len(all), most)] {
		facts = append(facts, m.fact)
	}
	return facts, nil
}

// matchWords is the notification as a fact, with how many of the words it has.
// Heartbeats hold numbers and state only.
func (n *note) matchWords(key string, words []string) memory {
	if n.Type == Heartbeat {
		return memory{}
	}
	var event struct {
		Payload wire.Raw `json:"payload"`
	}
	_ = wire.UnmarshalPart(n.Event, &event) // it was read when it came
	content := joinTexts(event.Payload)
	hits := knowledge.CountIn(words, content)
	if len(content) > maxMemory {
		content = strings.ToValidUTF8(content[:maxMemory], "") + "…"
	}
	return memory{shape.Fact{Content: content, Source: "session " + key + ", " + string(n.Type), Confidence: 0.5}, hits}
}

// detectIntent finds the intent whose keywords occur most in a prompt. If a rule sets
// the intent, the confidence is 1 and encode puts the rule's word in. With neither the
// answer is a block: an allow has to name an intent.
func detectIntent(prompt string, v policy.Verdict) Answer {
	best, hits, total := knowledge.IntentOf(prompt)
	sure := 1.0
	if v.Changes.Set["intent"] == nil && v.Changes.Set["detected_intent"] == nil {
		if best == "" {
			return Answer{Decision: "block", Reason: "The prompt has no keyword of an intent."}
		}
		sure = 0.5 + 0.4*float64(hits)/float64(total)
	}
	return Answer{Decision: "allow", DetectedIntent: best, Confidence: &sure}
}
