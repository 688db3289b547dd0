// Package secret finds credentials in text and replaces them by marks.
//
// It owns the table of what a credential looks like (kinds.go, names.go) and the form of a mark. It
// knows no protocol, no storage and no setting, and imports nothing of ours: who calls it decides
// what is looked at. There is no state; everything is safe for concurrent use.
//
// A mark is [secret:kind:digest]: the kind, such as github-token, and twelve hex digits of
// HMAC-SHA-256 over the credential under a key of the server. The same credential gives the same
// mark, so a reader sees that two steps used one key. Without the server's key the digest does not
// help to guess even a short password.
//
// # What is found
//
//   - Credentials with a form of their own: a prefix (ghp_, sk-ant-, xoxb-), a PEM block, a JWT.
//   - Values whose name says what they are: password=…, "apiKey": "…", --token …, Cookie: ….
//     They have to look like a credential, not like a word, a variable, a call or a placeholder.
//   - Passwords at a known place: in a URL, in curl -u, in mysql -p, in .netrc.
//   - Marks. They are reported with their kind and never replaced, so a text that was cleaned
//     before has the same kinds and stays as it is.
//
// Text that is JSON is looked at string by string, as the strings read once decoded, and a string
// that holds JSON again likewise. So escapes hide nothing, and a member's name counts for its value.
//
// # What is not found
//
// Words used as passwords where a word is more often something else ("password: letmein"),
// passphrases with spaces, credentials that are encoded (base64 of a whole file, URL-encoded
// assignments) or named in prose ("the password is hunter2"), hex or base64 without a name beside
// it (it is a commit, a digest or an image far more often), and ids that authorise nothing alone.
// Whoever wants to hide a credential from this package can; it catches accidents.
//
// # Cost
//
// One pass decides byte by byte whether something may begin here; nearly always the answer is no.
// What is looked at closer is bounded, or remembered, so that hostile text costs linear time: see
// scan.span. Text without a credential costs no allocation; JSON costs a copy of each string that
// has escapes.
package secret
