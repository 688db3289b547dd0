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
)

// The limits of what other providers send, a minute.
const (
	perProvider = 100
	perPlace    = 1000 // by where calls come from
)

// Call is what another provider says of itself and of the message that it brings.
type Call struct {
	Provider  string // its domain
	Timestamp string // seconds
	Signature string
	Replaces  string // the fingerprint that the sender's key has taken the place of, "" for none
	Remote    string // where the call comes from
}

// ReadCall reads the headers of a call.
func ReadCall(r *http.Request) Call {
	return Call{
		Provider: strings.ToLower(r.Header.Get("X-AMP-Provider")), Timestamp: r.Header.Get("X-AMP-Timestamp"),
		Signature: r.Header.Get("X-AMP-Signature"), Replaces: r.Header.Get("X-AMP-Key-Revoked"), Remote: r.RemoteAddr,
	}
}

// Admit refuses a call for what its headers say, before its body is read.
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
	// Who has not shown who they are is counted by where they come from.
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

// Verify finds out whether the provider has signed the call, and counts it against its limit.
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

// signedCall is what a provider signs.
func signedCall(at string, body []byte) []byte { return append([]byte(at+"."), body...) }

// isDomain: a provider has at least two labels.
func isDomain(text string) bool {
	labels := strings.Split(text, ".")
	for _, label := range labels {
		if !amp.LabelForm.MatchString(label) {
			return false
		}
	}
	return len(labels) >= 2
}

// HostHeader names the host that a call comes from.
const HostHeader = "X-Forwarded-From"

// HostCall is what another host of the mesh says of itself.
type HostCall struct {
	Host, Timestamp, Proof string
	Remote                 string // where the call comes from
}

// ReadHostCall reads the headers of a call.
func ReadHostCall(r *http.Request) HostCall {
	return HostCall{
		r.Header.Get(HostHeader), r.Header.Get("X-AMP-Timestamp"), r.Header.Get("X-AMP-Mesh-Auth"),
		r.RemoteAddr,
	}
}

// AdmitHost refuses a host that is not of the mesh, before the body of its call is read.
func (f *Federation) AdmitHost(c HostCall) error {
	if _, known := f.options.Mesh.Hosts[c.Host]; !known {
		return stranger()
	}
	return nil
}

// VerifyHost finds out which host is calling: one that shares a secret with us and shows it
// by the proof, or, without proof, one in a network that is open. To name a host is no
// proof.
func (f *Federation) VerifyHost(c HostCall, body []byte) (proved bool, err error) {
	host, known := f.options.Mesh.Hosts[c.Host]
	if !known {
		return false, stranger()
	}
	if c.Proof == "" {
		from, err := netip.ParseAddrPort(c.Remote)
		if err != nil || !slices.ContainsFunc(f.options.Mesh.Open,
			func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) }) {
			return false, stranger()
		}
		return false, nil
	}
	secret := host.Secret.Reveal()
	if secret == "" || !hmac.Equal([]byte(c.Proof), []byte(hostProof(secret, c.Timestamp, c.Host, body))) {
		return false, stranger()
	}
	seconds, err := strconv.ParseInt(c.Timestamp, 10, 64)
	if err != nil {
		return false, stranger()
	}
	return true, CheckTime(time.Unix(seconds, 0), f.core.Now())
}

func stranger() error {
	return fault.New(fault.Unauthenticated,
		"The header X-Forwarded-From is believed of a host that proves itself: X-AMP-Mesh-Auth has to be v1= and the "+
			"HMAC-SHA256, with the secret that both hosts have, of X-AMP-Timestamp, X-Forwarded-From and the SHA-256 of the "+
			"body in hex, with dots between. An agent sends its key as Authorization: Bearer ….")
}
