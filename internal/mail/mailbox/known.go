package mailbox

import (
	"context"
	"crypto/ed25519"
	"encoding/json" // the folder is shared with clients that write what wire would refuse
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// knownSender is the key of an agent that has written before. It is remembered from the
// first message on, and another is not believed until the agent's owner says so.
type knownSender struct {
	Fingerprint string `json:"fingerprint"`
	Since       string `json:"since"`
	Offered     string `json:"offered,omitempty"` // another, which has come since
}

func (b *Box) knownFile() string { return filepath.Join(b.Dir, "known_keys.json") }

func (b *Box) readKnown() (map[string]knownSender, error) {
	known := map[string]knownSender{}
	text, err := os.ReadFile(b.knownFile())
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil {
		return nil, unreadable(err, b.knownFile())
	}
	return known, nil
}

// recognise compares the key of a message that verifies with the one its sender had, and
// is why it is not believed, "" if it is. An agent of our own provider has to prove there
// with its old key that a new one is its own: if the provider has it, it has.
func (b *Box) recognise(ctx context.Context, known map[string]knownSender, address string, key ed25519.PublicKey,
	r *Registration,
) string {
	address = strings.ToLower(address)
	all := amp.Fingerprints(key)
	before, ok := known[address]
	switch {
	case !ok:
		known[address] = knownSender{Fingerprint: all[0], Since: b.stamp()}
	case !slices.Contains(all, before.Fingerprint) && slices.Contains(all, r.keyOf(ctx, address)):
		known[address] = knownSender{Fingerprint: all[0], Since: b.stamp()}
	case !slices.Contains(all, before.Fingerprint):
		before.Offered = all[0]
		known[address] = before
		return "its key is " + all[0] + ", and was " + before.Fingerprint +
			" before; if the sender has changed it, run `signalbox mail trust " + address + "`"
	}
	return ""
}

// keyOf is the fingerprint of the key that an agent of this provider is registered with, ""
// for others.
func (r *Registration) keyOf(ctx context.Context, address string) string {
	a, err := r.domains().Parse(address)
	if err != nil || r.domains().Home(a).Provider != r.Provider {
		return ""
	}
	var agent struct{ Fingerprint string }
	// without an answer it is not believed
	_ = newCaller(r.apiKey).call(ctx, http.MethodGet, r.APIURL+"/agents/resolve/"+url.PathEscape(address), nil, &agent)
	return agent.Fingerprint
}

// Trusting is what Trust has changed.
type Trusting struct {
	Address string `json:"address"`
	Before  string `json:"before"`
	Now     string `json:"now"`
}

// Accept takes the key that a sender has come with for its own.
func (b *Box) Accept(address string) (Trusting, error) {
	address = strings.ToLower(address)
	out := Trusting{Address: address}
	err := b.alone(func() error {
		known, err := b.readKnown()
		if err != nil {
			return err
		}
		sender, ok := known[address]
		if !ok || sender.Offered == "" {
			return fault.New(fault.NotFound, "No message of %.254s has come with another key than it had before.", address)
		}
		out.Before, out.Now = sender.Fingerprint, sender.Offered
		known[address] = knownSender{Fingerprint: sender.Offered, Since: b.stamp()}
		return writeJSON(b.knownFile(), known, 0o600)
	})
	return out, err
}
