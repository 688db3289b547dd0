package directory

import (
	"slices"
	"strings"

	"signalbox/internal/mail/amp"
)

// CommunicationPolicy is which recipients an agent may write to. The agent sets it for itself, as
// a seat belt; the operators' policy is another thing, which the agent cannot change.
type CommunicationPolicy struct {
	Mode string `json:"mode"` // open or restricted
	// AllowedRecipients counts in the mode restricted only.
	AllowedRecipients []string `json:"allowed_recipients,omitempty"`
}

// Allows reports whether the policy allows a recipient: by an address, *@tenant.provider,
// *@*.provider or *@*. Without a policy everybody is allowed.
func (p *CommunicationPolicy) Allows(to amp.Address) bool {
	if p == nil || p.Mode != "restricted" {
		return true
	}
	return slices.ContainsFunc(p.AllowedRecipients, func(pattern string) bool {
		name, domain, ok := strings.Cut(strings.ToLower(pattern), "@")
		if !ok || name != "*" && name != to.Name {
			return false
		}
		// The domain with scope, tenant and provider.
		full := strings.TrimPrefix(to.String(), to.Name+"@")
		// *.example.com must not match evilexample.com: what follows the star begins with a dot.
		rest, wild := strings.CutPrefix(domain, "*")
		return full == domain || wild && (rest == "" || strings.HasPrefix(rest, ".") && strings.HasSuffix(full, rest))
	})
}
