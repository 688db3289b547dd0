package knowledge

import "strings"

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

// IntentOf is the intent whose keywords occur most in a prompt, "" if none does, with how many of the keywords that
// occur are its own.
func IntentOf(prompt string) (best string, hits, total int) {
	text := strings.Join(Words(prompt), " ")
	for _, i := range intentWords {
		n := CountIn(i.words, text)
		if total += n; n > hits {
			best, hits = i.intent, n
		}
	}
	return best, hits, total
}
