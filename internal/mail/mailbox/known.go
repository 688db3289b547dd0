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

// knownSender is the key by which a sender is known (MSG-93). Its first message makes it; a verified
// rotation with our own provider, or Accept, replaces it. It is never removed.
type knownSender struct {
	Fingerprint string `json:"fingerprint"`
	Since       string `json:"since"`
	Offered     string `json:"offered,omitempty"` // a later key that waits for Accept
}

func (b *Box) knownFile() string { return filepath.Join(b.Dir, "known_keys.json") }

// readKnown reads the known senders by address. A damaged file is an error: starting again would trust
// any key.
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

// checkKnownKey compares the key of a message with the known one of its sender, and returns why the
// message is untrusted, "" if it is not. A new key counts if the known one has signed it, which the provider can show
// and cannot make up (MSG-98): its word alone, that an agent has another key now, is not enough.
func (b *Box) checkKnownKey(ctx context.Context, known map[string]knownSender, address string, key ed25519.PublicKey,
	r *Registration,
) string {
	address = strings.ToLower(address)
	all := amp.Fingerprints(key)
	// Trust on first use: the first key is believed, every other one has to be explained.
	before, ok := known[address]
	// Under one address, however the message spells it: another spelling is not another sender.
	if a, err := r.domains().Parse(address); err == nil && r.domains().Home(a).String() != address {
		address = r.domains().Home(a).String()
		if home, there := known[address]; there {
			before, ok = home, true
		}
	}
	switch {
	case !ok:
		known[address] = knownSender{Fingerprint: all[0], Since: b.stamp()}
	case !slices.Contains(all, before.Fingerprint) && amp.Rotated(before.Fingerprint, key, r.rotationsOf(ctx, address)):
		known[address] = knownSender{Fingerprint: all[0], Since: b.stamp()}
	case !slices.Contains(all, before.Fingerprint):
		// The known key stays. Only the last offered one is kept: it is what a person is asked about.
		before.Offered = all[0]
		known[address] = before
		return "its key is " + all[0] + ", and was " + before.Fingerprint +
			" before; if the sender has changed it, run `signalbox mail trust " + address + "`"
	}
	return ""
}

// rotationsOf asks the provider how an agent has changed its key; nil for an agent of another provider, and if there is
// no answer.
func (r *Registration) rotationsOf(ctx context.Context, address string) []amp.Rotation {
	a, err := r.domains().Parse(address)
	if err != nil || r.domains().Home(a).Provider != r.domains().Own {
		return nil
	}
	var agent struct {
		Rotations []amp.Rotation `json:"key_rotations"`
	}
	// without an answer it is not believed
	// Only asked if a key changed, which is rare.
	_ = newCaller(r.apiKey).call(ctx, http.MethodGet, r.APIURL+"/agents/resolve/"+url.PathEscape(address), nil, &agent)
	return agent.Rotations
}

// Trusting is the result of Accept.
type Trusting struct {
	Address string `json:"address"`
	Before  string `json:"before"`
	Now     string `json:"now"`
}

// Accept makes the offered key of a sender the known one. It is a person's decision, for the key that
// the last untrusted message had; messages that were fetched before stay untrusted.
func (b *Box) Accept(address string) (Trusting, error) {
	address = strings.ToLower(address)
	out := Trusting{Address: address}
	err := b.withLock(func() error {
		known, err := b.readKnown()
		if err != nil {
			return err
		}
		sender, ok := known[address]
		if !ok || sender.Offered == "" {
			return fault.New(fault.NotFound,
				"No message from %.254s had an unexpected key: there is nothing to accept.", address)
		}
		out.Before, out.Now = sender.Fingerprint, sender.Offered
		known[address] = knownSender{Fingerprint: sender.Offered, Since: b.stamp()}
		return writeJSON(b.knownFile(), known, 0o600)
	})
	return out, err
}
