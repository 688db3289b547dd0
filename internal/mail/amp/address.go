package amp

import (
	"regexp"
	"slices"
	"strings"

	"signalbox/internal/fault"
)

// Address is name@scope.tenant.provider, in lower case. Most addresses have no scope; it is one
// label or more, such as a repository and its platform. Make one with Domains.Expand or Parse,
// which check the form: every field but Scope is then set.
type Address struct {
	Name, Scope, Tenant, Provider string
}

// MaxAddress is the longest address, in bytes.
const MaxAddress = 254

// String is the address in full.
func (a Address) String() string {
	if a.Scope != "" {
		return a.Name + "@" + a.Scope + "." + a.Tenant + "." + a.Provider
	}
	return a.Short()
}

// Short is the address without its scope, which the bash clients leave out (MSG-14).
func (a Address) Short() string { return a.Name + "@" + a.Tenant + "." + a.Provider }

// LabelForm is the form of one label of a domain: a tenant, a host, part of a provider.
var LabelForm = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// isLabel reports whether a text has LabelForm or, for a name, the same with underscores
// (MSG-15). It is no regular expression, since every message has several addresses.
func isLabel(text string, name bool) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && (c != '_' || !name) {
			return false
		}
	}
	return text != "" && len(text) <= 63
}

// Domains are the provider domains that mean us: our own, which addresses are stored with, and
// aliases that clients write by default (MSG-13). The zero value means nobody, and reads every
// address by the rule for foreign ones.
type Domains struct {
	Own     string
	Aliases []string
}

// Ours reports whether a provider is us. A bare "local" comes from clients without a provider.
func (d Domains) Ours(provider string) bool {
	return provider == d.Own || provider == "local" || slices.Contains(d.Aliases, provider)
}

// split cuts a domain into scope with tenant, and provider (MSG-11). A domain of ours is found by
// its longest suffix, since it may have any number of labels; of others the provider is the last
// two labels, or the last one if there are only two.
func (d Domains) split(domain string) (before, provider string) {
	for _, own := range append([]string{d.Own}, d.Aliases...) {
		if own != "" && len(own) > len(provider) && (domain == own || strings.HasSuffix(domain, "."+own)) {
			provider = own
		}
	}
	if provider != "" {
		return strings.TrimSuffix(strings.TrimSuffix(domain, provider), "."), provider
	}
	labels := strings.Split(domain, ".")
	cut := max(len(labels)-2, 1)
	return strings.Join(labels[:cut], "."), strings.Join(labels[cut:], ".")
}

// Parse reads a full address. Short forms are errors.
func (d Domains) Parse(text string) (Address, error) {
	return d.Expand(text, "")
}

// Expand reads an address or one of its short forms (MSG-12): bob is an agent of the given tenant
// of ours, and bob@acme one of the tenant acme of ours. A domain without a dot is always a tenant.
func (d Domains) Expand(text, tenant string) (Address, error) {
	lower := strings.ToLower(text)
	name, domain, full := strings.Cut(lower, "@")
	if len(text) > MaxAddress || !isLabel(name, true) {
		return Address{}, badAddress(text)
	}
	if !full {
		if tenant == "" {
			return Address{}, badAddress(text)
		}
		return Address{Name: name, Tenant: tenant, Provider: d.Own}, nil
	}
	for label := range strings.SplitSeq(domain, ".") {
		if !isLabel(label, false) {
			return Address{}, badAddress(text)
		}
	}
	// bob@acme: a domain without a dot is a tenant of ours (MSG-12).
	if !strings.Contains(domain, ".") {
		return Address{Name: name, Tenant: domain, Provider: d.Own}, nil
	}
	before, provider := d.split(domain)
	if before == "" {
		return Address{}, badAddress(text)
	}
	a := Address{Name: name, Tenant: before, Provider: provider}
	if i := strings.LastIndexByte(before, '.'); i >= 0 {
		a.Scope, a.Tenant = before[:i], before[i+1:]
	}
	return a, nil
}

// Home is the address with our own domain in place of an alias. Addresses are stored and compared
// in this form.
func (d Domains) Home(a Address) Address {
	if d.Ours(a.Provider) {
		a.Provider = d.Own
	}
	return a
}

// Spelled is an address of ours in one of our other domains. Any other address, and any other domain, leaves it unchanged.
func (d Domains) Spelled(address, domain string) string {
	a, err := d.Parse(address)
	if err != nil || !d.Ours(a.Provider) || !slices.Contains(d.Aliases, domain) {
		return address
	}
	a.Provider = domain
	return a.String()
}

// Spellings are the ways in which clients write an address of ours, as registered first: with and
// without its scope, and with each domain that means us. A signature may cover any of them
// (MSG-42).
func (d Domains) Spellings(a Address) []string {
	all := []string{a.String()}
	for _, domain := range append([]string{d.Own}, d.Aliases...) {
		a.Provider = domain
		for _, text := range []string{a.String(), a.Short()} {
			if !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all
}

// badAddress does not say which part is wrong: clients print the text, and the example is clearer.
func badAddress(text string) *fault.Error {
	return fault.New(fault.InvalidField,
		"An address should be name@tenant.provider, such as \"bob@acme.signalbox.local\", of letters, digits, hyphens and "+
			"dots, and at most %d bytes. It is %.80q.", MaxAddress, text)
}
