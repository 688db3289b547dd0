package directory

import (
	"slices"
	"strings"

	"signalbox/internal/mail/amp"
)

// CommunicationPolicy says whom an agent means to write to.
type CommunicationPolicy struct {
	Mode              string   `json:"mode"` // open or restricted
	AllowedRecipients []string `json:"allowed_recipients,omitempty"`
}

// Allows reports whether the policy names the recipient: *@tenant.provider,
// *@*.provider, *@* or an address.
func (p *CommunicationPolicy) Allows(to amp.Address) bool {
	if p == nil || p.Mode != "restricted" {
		return true
	}
	return slices.ContainsFunc(p.AllowedRecipients, func(pattern string) bool {
		name, domain, ok := strings.Cut(strings.ToLower(pattern), "@")
		if !ok || name != "*" && name != to.Name {
			return false
		}
		full := strings.TrimPrefix(to.String(), to.Name+"@")
		rest, wild := strings.CutPrefix(domain, "*")
		return full == domain || wild && (rest == "" || strings.HasPrefix(rest, ".") && strings.HasSuffix(full, rest))
	})
}
