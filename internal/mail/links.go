package mail

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"signalbox/internal/mail/federation"
	"signalbox/internal/wire"
)

// Link is another server that mail is exchanged with: a provider that is listed or that something waits for, or a host
// of the mesh.
type Link struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind" doc:"provider or host"`
	URL       string     `json:"url,omitzero"`
	Registrar bool       `json:"registrar,omitzero" doc:"it decides which host has an address"`
	Waiting   int64      `json:"waiting"` // messages
	Oldest    *time.Time `json:"oldest"`
	// LastError is why the last call failed, "" if it did not.
	LastError string     `json:"last_error"`
	FailedAt  *time.Time `json:"failed_at"`
}

// Links are the answer to GET /ops/mail/links.
type Links struct {
	Host  string `json:"host,omitzero"` // the id of this host in a mesh
	Links []Link `json:"links"`
}

// Links lists the other servers, the queues to them and their last errors. They are the whole server's: whoever sees
// one workspace sees none.
func (m *Mail) Links(ctx context.Context) (Links, error) {
	out := Links{Host: m.Mesh.Host, Links: []Link{}}
	if wire.Scope(ctx) != "" {
		return out, nil
	}
	waiting, err := m.core.Outbox.Backlogs(ctx, federation.Senders()...)
	if err != nil {
		return out, err
	}
	all := map[string]Link{}
	for domain, address := range m.Peering.Peers {
		all[domain] = Link{Name: domain, Kind: "provider", URL: address}
	}
	for target := range waiting {
		if _, is := federation.Target(target).Host(); !is {
			all[target] = Link{Name: target, Kind: "provider", URL: m.Peering.Peers[target]}
		}
	}
	for name, host := range m.Mesh.Hosts {
		l := Link{Name: name, Kind: "host", URL: host.URL, Registrar: name == m.Homes.Registrar()}
		if last := m.Homes.Contact(name); last.Error != "" {
			l.LastError, l.FailedAt = last.Error, &last.At
		}
		all[string(federation.TargetHost(name))] = l
	}
	for _, target := range slices.Sorted(maps.Keys(all)) {
		l := all[target]
		if b, is := waiting[target]; is {
			l.Waiting, l.Oldest, l.LastError = b.Waiting, &b.Oldest, cmp.Or(b.LastError, l.LastError)
			l.FailedAt = cmp.Or(b.FailedAt, l.FailedAt)
		}
		out.Links = append(out.Links, l)
	}
	return out, nil
}

func (m *Mail) getLinks(r *http.Request) (Links, error) { return m.Links(r.Context()) }
