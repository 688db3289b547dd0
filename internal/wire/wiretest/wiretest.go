// Package wiretest has texts that a server might answer with, for the tests of everything of ours that
// reads answers: what one reader takes for an approval, all of them do. It holds the texts and what
// they are, and knows no reader.
package wiretest

import (
	_ "embed"
	"encoding/json" // a table of our own, which needs no strictness
	"fmt"
	"strings"
)

// Words are how a protocol says yes and no: the member, its two values as JSON, and what else an
// answer has to have, such as `,"gate_id":null`.
type Words struct{ Name, Yes, No, Rest string }

// Answer is a text that may look like an approval.
type Answer struct {
	Name string `json:"name"`
	Text string `json:"text"`
	Good bool   `json:"good"` // it is one
}

//go:embed answers.json
var answers []byte

// Answers are the texts in the words of a protocol.
func Answers(w Words) []Answer {
	var all []Answer
	if err := json.Unmarshal(answers, &all); err != nil {
		panic(fmt.Sprintf("answers.json: %v", err))
	}
	words := strings.NewReplacer(
		"$name", w.Name, "$NAME", strings.ToUpper(w.Name), "$escaped", fmt.Sprintf(`\u%04x%s`, w.Name[0], w.Name[1:]),
		"$yes", w.Yes, "$no", w.No, "$rest", w.Rest, "$byte", "\xff", "$half", `\ud800`)
	for i := range all {
		all[i].Text = words.Replace(all[i].Text)
	}
	return all
}
