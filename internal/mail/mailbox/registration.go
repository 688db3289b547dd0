package mailbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// Registration is an agent's address with one provider, and the API key for it. Register makes it.
// The API key is not exported, so that no output can contain it.
type Registration struct {
	Provider     string `json:"provider"`
	Address      string `json:"address"`
	Short        string `json:"short_address"`
	Tenant       string `json:"tenant"`
	AgentID      string `json:"agent_id"`
	APIURL       string `json:"api_url"`
	RouteURL     string `json:"route_url"`
	Fingerprint  string `json:"fingerprint"`
	RegisteredAt string `json:"registered_at"`

	apiKey string
	rest   object // the whole file, with members of other clients
}

// bashDomain is the domain that the bash clients write by default (MSG-13).
const bashDomain = "aimaestro.local"

// domains are the domains that mean this provider. The bash clients of Agent Messaging file every provider under their
// own domain; then the address says which one it is.
func (r *Registration) domains() amp.Domains {
	own := r.Provider
	if a, err := (amp.Domains{Own: own}).Parse(r.Address); err == nil && own == bashDomain {
		own = a.Provider
	}
	return amp.Domains{Own: own, Aliases: []string{bashDomain}}
}

// spelling is the agent's address for a message to an address. To one in the domain of the bash clients it writes in
// that domain too: those of Agent Messaging answer no other.
func (r *Registration) spelling(to amp.Address) string {
	own, err := r.domains().Parse(r.Address)
	if err != nil || to.Provider != bashDomain {
		return r.Address
	}
	own.Provider = bashDomain
	return own.String()
}

// checkDomain refuses a provider that is no domain: it becomes the name of a file.
func checkDomain(domain string) error {
	for label := range strings.SplitSeq(domain, ".") {
		if !amp.LabelForm.MatchString(label) {
			return fault.New(fault.InvalidField, "A provider should be a domain, such as \"crabmail.ai\", and is %.80q.", domain)
		}
	}
	return nil
}

func (b *Box) registrationFile(provider string) string {
	return filepath.Join(b.Dir, "registrations", provider+".json")
}

// readRegistrations reads all registrations, with their members in the spelling of the bash clients
// or of the documents. The primary provider comes first, then the oldest. A damaged file is an error
// rather than a missing address.
func (b *Box) readRegistrations() error {
	files, err := os.ReadDir(filepath.Join(b.Dir, "registrations"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unreadable(err, b.Dir)
	}
	for _, f := range files {
		domain, ok := strings.CutSuffix(f.Name(), ".json")
		// Other files in the folder are not ours to complain about.
		if !ok || checkDomain(domain) != nil {
			continue
		}
		o, err := readObject(b.registrationFile(domain))
		if err != nil {
			return unreadable(err, b.registrationFile(domain))
		}
		r := Registration{
			Provider: domain, Address: o.text("address"), Short: o.text("shortAddress", "short_address"),
			Tenant:  o.text("tenant"),
			AgentID: o.text("providerAgentId", "agent_id"), APIURL: apiBase(o.text("apiUrl", "api_url")),
			RouteURL:    o.text("routeUrl", "route_url"),
			Fingerprint: o.text("fingerprint"), RegisteredAt: o.text("registeredAt", "registered_at"),
			apiKey: o.text("apiKey", "api_key"), rest: o,
		}
		// Everything is addressed by it: a registration with a broken address is of no use.
		a, err := r.domains().Parse(r.Address)
		if err != nil {
			return unreadable(err, b.registrationFile(domain))
		}
		if r.Tenant == "" {
			r.Tenant = a.Tenant
		}
		b.Registrations = append(b.Registrations, r)
	}
	// ReadDir sorts by domain, which means nothing here.
	slices.SortStableFunc(b.Registrations, func(x, y Registration) int {
		if px, py := x.Provider == b.Provider, y.Provider == b.Provider; px != py {
			if px {
				return -1
			}
			return 1
		}
		return strings.Compare(x.RegisteredAt, y.RegisteredAt)
	})
	return nil
}

// apiBase adds /v1 to an address that lacks it: the bash clients store the host and add it later. Theirs names their domain
// (MSG-113), where mail comes in other words than those that were signed.
func apiBase(url string) string {
	url = strings.TrimSuffix(strings.TrimSuffix(url, "/"), "/as/"+bashDomain)
	if url != "" && !strings.HasSuffix(url, "/v1") {
		url += "/v1"
	}
	return url
}

// writeRegistration writes a registration with both spellings of its members, so that every client
// finds its own.
func (b *Box) writeRegistration(r *Registration) error {
	if r.rest == nil {
		r.rest = object{}
	}
	// Everything in both spellings; fetchUrl is what generation B polls.
	for _, m := range []struct {
		value string
		names []string
	}{
		{r.Provider, []string{"provider"}},
		{r.APIURL, []string{"apiUrl", "api_url"}},
		{r.RouteURL, []string{"routeUrl", "route_url"}},
		{b.Name, []string{"agentName"}},
		{r.Tenant, []string{"tenant"}},
		{r.Address, []string{"address"}},
		{r.Short, []string{"shortAddress", "short_address"}},
		{r.apiKey, []string{"apiKey", "api_key"}},
		{r.AgentID, []string{"providerAgentId", "agent_id"}},
		{r.Fingerprint, []string{"fingerprint"}},
		{r.RegisteredAt, []string{"registeredAt", "registered_at"}},
		{r.APIURL + "/messages/pending", []string{"fetchUrl"}},
	} {
		r.rest.set(m.value, m.names...)
	}
	return writeJSON(b.registrationFile(r.Provider), r.rest, 0o600)
}

// registration is the one to use: the address or provider that was asked for, else the one with the
// recipient's provider, else the first.
func (b *Box) registration(from, to string) (*Registration, error) {
	if len(b.Registrations) == 0 {
		return nil, fault.New(fault.NotFound, "%s has no address yet. Get it one with `signalbox mail register`.", b.Name)
	}
	_, domain, _ := strings.Cut(strings.ToLower(to), "@")
	var best *Registration
	for i := range b.Registrations {
		r := &b.Registrations[i]
		switch {
		case from != "":
			if strings.EqualFold(from, r.Address) || strings.EqualFold(from, r.Provider) {
				return r, nil
			}
		// The longest provider: agents.example.com is not example.com.
		case strings.HasSuffix(domain, "."+r.Provider) && (best == nil || len(r.Provider) > len(best.Provider)):
			best = r
		}
	}
	if from != "" {
		return nil, fault.New(fault.NotFound, "%s is not an address of %s. `signalbox mail status` lists them.", from, b.Name)
	}
	if best == nil {
		best = &b.Registrations[0]
	}
	return best, nil
}

// registrationOf is the registration that a message was fetched with. Other clients do not always store
// that; then the recipient's address decides.
func (b *Box) registrationOf(m *Message) (*Registration, error) {
	if r, err := b.registration(m.From, ""); m.From != "" && err == nil {
		return r, nil
	}
	return b.registration("", m.Envelope.To)
}
