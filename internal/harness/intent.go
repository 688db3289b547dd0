package harness

import (
	"strings"

	"signalbox/internal/harness/knowledge"
	"signalbox/internal/policy"
)

// intentWords are the keywords of each intent. The order breaks ties: an intent further
// up is named by rarer words. Rules at the point intent add a workspace's own: allow
// with set: {intent: …}.
var intentWords = []struct {
	intent string
	words  []string
}{
	{"compare", []string{"compare", "difference", "differences", "versus", "vs", "better"}},
	{"validate", []string{"validate", "verify", "check", "test", "tests", "correct", "prove"}},
	{"locate", []string{"where", "locate", "find", "which", "defined", "location"}},
	{"track", []string{"track", "status", "progress", "history", "changed", "changes", "recent"}},
	{"retrieve", []string{"get", "fetch", "retrieve", "show", "list", "read", "open", "print"}},
	{"explore", []string{"explore", "overview", "browse", "look", "around", "structure", "survey"}},
	{"reason", []string{"why", "reason", "decide", "should", "cause", "because", "plan"}},
	{"understand", []string{"what", "how", "explain", "understand", "describe", "mean", "means", "work", "works"}},
	{"recognize", []string{"recognize", "identify", "classify", "detect"}},
}

// detectIntent finds the intent whose keywords occur most in a prompt. If a rule sets
// the intent, the confidence is 1 and encode puts the rule's word in. With neither the
// answer is a block: an allow has to name an intent.
func detectIntent(prompt string, v policy.Verdict) Answer {
	best, hits, total := "", 0, 0
	words := knowledge.Words(prompt)
	for _, i := range intentWords {
		n := knowledge.CountIn(i.words, strings.Join(words, " "))
		if total += n; n > hits {
			best, hits = i.intent, n
		}
	}
	sure := 1.0
	if v.Changes.Set["intent"] == nil && v.Changes.Set["detected_intent"] == nil {
		if best == "" {
			return Answer{Decision: "block", Reason: "The prompt has no keyword of an intent."}
		}
		sure = 0.5 + 0.4*float64(hits)/float64(total)
	}
	return Answer{Decision: "allow", DetectedIntent: best, Confidence: &sure}
}
