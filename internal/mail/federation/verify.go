package federation

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The limits of calls from other providers, in calls a minute.
const (
	perProvider = 100
	perPlace    = 1000 // from one address, before anybody has proved who calls
)

// Call is what the headers of a call from another provider claim. Nothing in it is proved before
// Verify.
type Call struct {
	Provider  string // its domain
	Timestamp string // seconds
	Signature string
	Replaces  string // the fingerprint that the sender's key replaced, "" for none
	Remote    string // the address that the call comes from
}

// ReadCall reads the headers of a call from a provider.
func ReadCall(r *http.Request) Call {
	return Call{
		Provider: strings.ToLower(r.Header.Get("X-AMP-Provider")), Timestamp: r.Header.Get("X-AMP-Timestamp"),
		Signature: r.Header.Get("X-AMP-Signature"), Replaces: r.Header.Get("X-AMP-Key-Revoked"), Remote: r.RemoteAddr,
	}
}

// Admit refuses a call by its headers, before the body is read: missing headers, a provider that
// is not one or is ourselves, too many calls from one address, a time that is off.
func (f *Federation) Admit(c Call) error {
	for _, header := range [][2]string{
		{"X-AMP-Provider", c.Provider},
		{"X-AMP-Timestamp", c.Timestamp},
		{"X-AMP-Signature", c.Signature},
	} {
		if header[1] == "" {
			return fault.New(fault.MissingHeader, "The header %s is missing.", header[0])
		}
	}
	if len(c.Provider) > amp.MaxAddress || !isDomain(c.Provider) || f.options.Domains.Ours(c.Provider) {
		return notTrusted(c.Provider)
	}
	// The provider is not proved yet: counting by its name would let anybody use up its limit.
	host, _, _ := net.SplitHostPort(c.Remote)
	if _, err := f.core.Roster.Take(roster.Identity{ID: "from:" + host, Name: host}, "federation", perPlace); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(c.Timestamp, 10, 64)
	if err != nil {
		return fault.New(fault.InvalidField, "The header X-AMP-Timestamp should be a time in seconds, and is %.40q.",
			c.Timestamp)
	}
	return CheckTime(time.Unix(seconds, 0), f.core.Now())
}

// Verify checks the provider's signature over the call, and counts it against the provider's
// limit.
func (f *Federation) Verify(ctx context.Context, c Call, body []byte) (roster.Allowance, error) {
	from, err := f.peer(ctx, c.Provider)
	if err != nil {
		return roster.Allowance{}, err
	}
	signature, err := base64.StdEncoding.DecodeString(c.Signature)
	if err != nil || !ed25519.Verify(from.key, signedCall(c.Timestamp, body), signature) {
		return roster.Allowance{}, fault.New(fault.SignatureInvalid,
			"X-AMP-Signature is not one of the key of %s over the time, a dot and the body.", c.Provider)
	}
	return f.core.Roster.Take(roster.Identity{ID: "provider:" + c.Provider, Name: c.Provider}, "federation", perProvider)
}

// signedCall is the text that a provider signs (MSG-80).
func signedCall(at string, body []byte) []byte { return append([]byte(at+"."), body...) }

// isDomain reports whether a text is the domain of a provider, which has at least two labels.
func isDomain(text string) bool {
	labels := strings.Split(text, ".")
	for _, label := range labels {
		if !amp.LabelForm.MatchString(label) {
			return false
		}
	}
	return len(labels) >= 2
}

// HostHeader is the header with the id of the calling host. It proves nothing by itself.
const HostHeader = "X-Forwarded-From"

// ProofHeader is the header with the proof of the calling host.
const ProofHeader = "X-AMP-Mesh-Auth"

// HostCall is what the headers of a call from another host claim. Nothing in it is proved before
// VerifyHost.
type HostCall struct {
	Host, Timestamp, Proof string
	Remote                 string // the address that the call comes from, "" if it is not known
}

// ReadHostCall reads the headers of a call from a host.
func ReadHostCall(r *http.Request) HostCall {
	call := HostCall{
		r.Header.Get(HostHeader), r.Header.Get("X-AMP-Timestamp"), r.Header.Get(ProofHeader), r.RemoteAddr,
	}
	if wire.ReachOf(r.Context()).Forwarded { // the address is a proxy's
		call.Remote = ""
	}
	return call
}

// AdmitHost refuses a host that is not configured, before the body of its call is read.
func (f *Federation) AdmitHost(c HostCall) error {
	if _, known := f.options.Mesh.Hosts[c.Host]; !known {
		return unprovenHost()
	}
	return nil
}

// VerifyHost checks the proof of a host over its call (MSG-85). A call without a proof is accepted
// from a network in Mesh.Open, with proved false (MSG-87). A wrong proof is refused from anywhere.
func (f *Federation) VerifyHost(c HostCall, body []byte) (proved bool, err error) {
	host, known := f.options.Mesh.Hosts[c.Host]
	if !known {
		return false, unprovenHost()
	}
	if c.Proof == "" {
		from, err := netip.ParseAddrPort(c.Remote)
		if err != nil || !slices.ContainsFunc(f.options.Mesh.Open,
			func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) }) {
			return false, unprovenHost()
		}
		return false, nil
	}
	// hmac.Equal takes the same time for every proof. A host without a secret can prove nothing.
	secret := host.Secret.Reveal()
	if secret == "" || !hmac.Equal([]byte(c.Proof), []byte(hostProof(secret, c.Timestamp, c.Host, body))) {
		return false, unprovenHost()
	}
	seconds, err := strconv.ParseInt(c.Timestamp, 10, 64)
	if err != nil {
		return false, unprovenHost()
	}
	return true, CheckTime(time.Unix(seconds, 0), f.core.Now())
}

// unprovenHost is one answer for everything that is wrong with a proof, so that nobody learns which part
// was right.
func unprovenHost() error {
	return fault.New(fault.Unauthenticated,
		"X-Forwarded-From is accepted only with a proof: X-AMP-Mesh-Auth must be v1= and the hex HMAC-SHA256, with the "+
			"secret that both hosts share, over X-AMP-Timestamp, X-Forwarded-From and the hex SHA-256 of the body, joined "+
			"with dots. An agent sends its key as Authorization: Bearer ….")
}
