package directory

import (
	"crypto/ed25519"
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// newcomer is a registration that is right in itself.
type newcomer struct {
	*amp.Fields
	name, tenant, scope string
	key                 ed25519.PublicKey
	invite              string
	proof               []byte
	proofAt             int64
	id                  string // if it is new
	profile             Profile
}

// rosterName is the name in the workspace: a scope makes it another one.
func (n *newcomer) rosterName() string {
	if n.scope != "" {
		return n.name + "." + n.scope
	}
	return n.name
}

func (n *newcomer) address(provider string) amp.Address {
	return amp.Address{Name: n.name, Scope: n.scope, Tenant: n.tenant, Provider: provider}
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func parseRegistration(body []byte) (*newcomer, error) {
	f, err := amp.ReadFields(body)
	if err != nil {
		return nil, err
	}
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
	if pem != "" {
		if n.key, err = roster.ParsePublicKey(pem); err != nil {
			f.Fail("public_key", "is not right: %s", fault.From(err).Message)
		}
	}
	if scope := f.Object("scope"); scope != nil {
		n.readScope(scope)
	}
	n.readProof()
	return n, f.Err
}

// isEd25519 reports whether an algorithm is ours, or is not said.
func isEd25519(algorithm string) bool {
	return algorithm == "" || strings.EqualFold(algorithm, "Ed25519")
}

// readScope: a repository of a platform, as in repo.github.
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

func (n *newcomer) readProof() {
	text := n.Text("proof", 256)
	if text == "" {
		return
	}
	var err error
	if n.proof, err = base64.StdEncoding.DecodeString(text); err != nil || len(n.proof) != ed25519.SignatureSize {
		n.Fail("proof", "should be an Ed25519 signature in base64.")
	}
	raw, ok := n.Get("proof_timestamp")
	n.proofAt, err = strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if !ok || err != nil {
		n.Fail("proof_timestamp", "should be the time in seconds that the proof is signed with.")
	}
}
