// Package document reads YAML that people write, strictly, and says where it is wrong.
//
// A Reader takes the nodes of a document apart. What does not fit is noted with line,
// column and what was meant, and reading goes on, so that one look at the file can fix
// all of it. Inside finds the place of a character inside of a text, however the text
// is quoted, folded or indented, for languages that stand inside of YAML. Anchors,
// aliases, tags and second documents are refused: what a policy says should be what one
// sees.
//
// It knows nothing of rules, and is no good for writing. A Reader belongs to one
// goroutine.
package document
