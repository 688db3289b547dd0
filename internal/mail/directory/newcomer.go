package directory

import (
	"crypto/ed25519"
	"regexp"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// newcomer is a registration whose form is right. Whether it is admitted is decided later
// (checkMayRegister, registerIn); tenant may be filled in by then.
type newcomer struct {
	*amp.Fields
	name, tenant, scope string
	key                 ed25519.PublicKey
	invite              string
	proof               []byte
	proofAt             int64
	mode                string // who may register by this call
	id                  string // for a new agent; drawn before the transaction, which may run twice
	profile             Profile
	signs               bool // it demands that the server takes only what it signs
}

// rosterName is the agent's name in the workspace. A scope is part of it, since one name with two
// scopes is two agents.
func (n *newcomer) rosterName() string {
	if n.scope != "" {
		return n.name + "." + n.scope
	}
	return n.name
}

// address is the address that the newcomer asks for.
func (n *newcomer) address(provider string) amp.Address {
	return amp.Address{Name: n.name, Scope: n.scope, Tenant: n.tenant, Provider: provider}
}

// nameForm is the form of a name (MSG-15). It must not begin with "_": those are the server's own.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// parseRegistration reads and checks a registration. MSG-17: agent_id is not read.
func parseRegistration(body []byte) (*newcomer, error) {
	f, err := amp.ReadFields(body)
	if err != nil {
		return nil, err
	}
	// Names and tenants are lower case everywhere (MSG-10).
	n := &newcomer{
		Fields: f, tenant: strings.ToLower(f.Text("tenant", 63)), invite: f.Text("invite_code", 128),
		name: strings.ToLower(f.Required("name", 63,
			"1 to 63 letters, digits, hyphens and underscores, such as \"my-agent\"")),
	}
	if n.name != "" && !nameForm.MatchString(n.name) {
		f.Fail("name", "should be 1 to 63 letters, digits, hyphens and underscores, such as \"my-agent\", and is %.80q.",
			n.name)
	}
	if n.tenant != "" && !amp.LabelForm.MatchString(n.tenant) {
		f.Fail("tenant", "should be letters, digits and hyphens, such as \"acme\", and is %.80q.", n.tenant)
	}
	pem := f.Required("public_key", 4096, "an Ed25519 key as PEM")
	if algorithm := f.Required("key_algorithm", 32, "\"Ed25519\""); !isEd25519(algorithm) {
		f.Fail("key_algorithm", "should be \"Ed25519\", and is %.40q.", algorithm)
	}
	// A missing key has been recorded by Required, with a better text.
	if pem != "" {
		if n.key, err = roster.ParsePublicKey(pem); err != nil {
			f.Fail("public_key", "is not right: %s", fault.From(err).Message)
		}
	}
	if scope := f.Object("scope"); scope != nil {
		n.readScope(scope)
	}
	n.proof, n.proofAt = n.Proof()
	if signs := f.Flag("require_signature"); signs != nil {
		n.signs = *signs
	}
	return n, f.Err
}

// bashDomain is the domain that the bash clients write in every address unless they are told otherwise. They ask nobody for
// it. Generation A looks for its registration under that name alone; generation B believes no mail from another domain than
// that which its registration names.
const bashDomain = "aimaestro.local"

// spokenDomain is the domain that a registration has to be answered with, "" for our own (MSG-113). The bash clients call
// with curl, and their registrations have exactly these members.
func (n *newcomer) spokenDomain(agent string, domains amp.Domains) string {
	const a, b = "name tenant public_key key_algorithm", " agent_id"
	if !strings.HasPrefix(agent, "curl/") || !slices.Contains(domains.Aliases, bashDomain) ||
		!n.Only(strings.Fields(a)...) && !n.Only(strings.Fields(a+b)...) {
		return ""
	}
	return bashDomain
}

// isEd25519 reports whether an algorithm is the only one that we take, or is absent.
func isEd25519(algorithm string) bool {
	return algorithm == "" || strings.EqualFold(algorithm, "Ed25519")
}

// readScope reads a scope: a repository and its platform, which become the labels repo.github.
func (n *newcomer) readScope(f *amp.Fields) {
	repo, platform := strings.ToLower(f.Text("repo", 63)), strings.ToLower(f.Text("platform", 63))
	var labels []string
	for _, label := range []string{repo, platform} {
		if label == "" {
			continue
		}
		if !amp.LabelForm.MatchString(label) {
			f.Fail("repo", "and platform should be of letters, digits and hyphens.")
		}
		labels = append(labels, label)
	}
	n.scope = strings.Join(labels, ".")
	n.Join(f)
}
