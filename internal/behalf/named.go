package behalf

import (
	"bytes"
	"cmp"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"signalbox/internal/policy"
	"signalbox/internal/wire"
)

// The headers by which a call over HTTP says for whom it is, where its body has no place for that or is passed on.
const (
	UserHeader       = "X-Amp-User"
	TokenHeader      = "X-Amp-User-Token"
	WorkspaceHeader  = "X-Amp-Workspace"
	DelegationHeader = "X-Amp-Delegation"
	// WithinHeader has the token of the handoff in whose process the call is made (policy.Claim.Within). Every call over
	// HTTP may have it.
	WithinHeader = "X-Amp-Within"
)

// The members by which an object says it: metadata of AHP and of signals, the context of a mail. Tasks have them with
// x_ before them.
const (
	userMember       = "user"
	delegationMember = "delegation"
)

// Named is what a call says of for whom it happens. Nothing of it is proved: roster.For and the rulebook do that.
type Named struct {
	User      string // by name, id or e-mail, "" for nobody
	UserToken string // with which the user proves it, "" for none
	Workspace string // the one that the call says it is in
	Claim     policy.Claim
}

// In reads an object that says for whom a call is, such as metadata. Whatever has another form than it should says
// nothing, but a delegation that is no text is a claim all the same.
func In(object wire.Raw) Named {
	if object.Kind() != '{' {
		return Named{}
	}
	members, _ := wire.Members(object)
	return From(members, "")
}

// From is In for members that were read already, whose names have a prefix.
func From(members map[string]wire.Raw, prefix string) (n Named) {
	n.User, _ = wire.Text(members[prefix+userMember])
	switch value := members[prefix+delegationMember]; value.Kind() {
	case 0, 'n': // there is none, or null
	case '"':
		if text, _ := wire.Text(value); text != tokenMark {
			n.Claim.Token = text
		}
	default:
		n.Claim.Hops = true
	}
	n.Workspace, _ = wire.Text(members[prefix+"workspace"])
	if token := members[prefix+"user_token"]; len(token) > 0 && token.Kind() != 'n' {
		var isText bool
		if n.UserToken, isText = wire.Text(token); !isText {
			n.UserToken = string(token) // which proves nothing, and is refused
		}
	}
	n.Claim.Subagent, _ = wire.Text(members[prefix+"subagent_id"])
	n.Claim.SubagentType, _ = wire.Text(members[prefix+"subagent"])
	return n
}

// At is In for a call that says how deep it is, and that depth, 0 if it does not say.
func At(object, number wire.Raw) (n Named, depth int64) {
	n = In(object)
	if number.Kind() == '0' {
		depth, _ = strconv.ParseInt(string(number), 10, 64)
		n.Claim.Depth = &depth
	}
	return n, depth
}

// Header reads the headers of a call.
func Header(h http.Header) Named {
	return Named{
		User: h.Get(UserHeader), UserToken: strings.Join(h.Values(TokenHeader), ", "), Workspace: h.Get(WorkspaceHeader),
		Claim: policy.Claim{Token: h.Get(DelegationHeader)},
	}
}

// Or fills in what a call does not say itself from what says it for all of its calls, such as the header of a
// connection.
func (n Named) Or(other Named) Named {
	n.User, n.UserToken = cmp.Or(n.User, other.User), cmp.Or(n.UserToken, other.UserToken)
	n.Workspace = cmp.Or(n.Workspace, other.Workspace)
	if n.Claim.Token == "" && !n.Claim.Hops {
		n.Claim.Token, n.Claim.Hops = other.Claim.Token, other.Claim.Hops
	}
	n.Claim.Within = cmp.Or(n.Claim.Within, other.Claim.Within)
	return n
}

// Into puts what is named into the event that the policy decides.
func (n Named) Into(e *policy.Event) {
	e.User, e.UserToken, e.Workspace, e.Claim = n.User, n.UserToken, n.Workspace, n.Claim
}

// minToken is the fewest bytes of what could be a user's token. A shorter text is no secret, and is not looked for.
const minToken = 16

// Hide is a document as it may be stored: without the user's token that it brought.
func (n Named) Hide(document wire.Raw) wire.Raw {
	if len(n.UserToken) < minToken {
		return document
	}
	quoted, err := wire.Marshal(n.UserToken)
	if err != nil {
		quoted = []byte(n.UserToken)
	}
	document = bytes.ReplaceAll(document, quoted, []byte(`"(hidden)"`))
	return bytes.ReplaceAll(document, []byte(n.UserToken), []byte(`"(hidden)"`))
}

// tokenMark stands in a stored document where a token was.
const tokenMark = "[handoff]"

// tokens is the form of a handoff's token, which no word of a language is long enough to have.
var tokens = regexp.MustCompile(`hof_[0-9A-Za-z_]{20,}`)

// HasToken reports whether a text holds what has the form of a handoff's token.
func HasToken(text []byte) bool { return tokens.Match(text) }

// Cut replaces the tokens in a document that is stored as it came: who reads it later must not use them.
func Cut(document []byte) []byte {
	if !HasToken(document) {
		return document
	}
	return tokens.ReplaceAll(document, []byte(tokenMark))
}
