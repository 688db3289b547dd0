// Package document reads YAML that people write, strictly, and says where it is wrong.
//
// A Reader walks the nodes of a document. What does not fit is noted with line, column and
// what was meant, and reading goes on, so that all mistakes of a file are reported at once.
// Inside finds the position of a character inside of a text, however the text is quoted,
// folded or indented, for languages that are embedded in YAML. Anchors, aliases, tags and
// second documents are refused: what a policy says should be what one sees.
//
// The methods of a Reader return the zero value for what is wrong. Nothing that was read may
// be used before Fault has returned nil.
//
// It knows nothing of rules, and does not write YAML. A Reader belongs to one goroutine.
package document
