// Package links tells operators about the other servers that mail is exchanged with: the queues to them and their last
// errors. It stores nothing.
package links

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/homes"
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

// Lister lists them, from the configuration, the outbox and the last calls.
type Lister struct {
	Peers  map[string]string
	Mesh   federation.Mesh
	Homes  *homes.Homes
	Outbox *deliver.Outbox
}

// List lists the other servers. They are the whole server's: whoever sees one workspace sees none.
func (l Lister) List(ctx context.Context) (Links, error) {
	out := Links{Host: l.Mesh.Host, Links: []Link{}}
	if wire.Scope(ctx) != "" {
		return out, nil
	}
	waiting, err := l.Outbox.Backlogs(ctx, federation.Senders()...)
	if err != nil {
		return out, err
	}
	all := map[string]Link{}
	for domain, address := range l.Peers {
		all[domain] = Link{Name: domain, Kind: "provider", URL: address}
	}
	for target := range waiting {
		if _, is := federation.Target(target).Host(); !is {
			all[target] = Link{Name: target, Kind: "provider", URL: l.Peers[target]}
		}
	}
	for name, host := range l.Mesh.Hosts {
		one := Link{Name: name, Kind: "host", URL: host.URL, Registrar: name == l.Homes.Registrar()}
		if last := l.Homes.Contact(name); last.Error != "" {
			one.LastError, one.FailedAt = last.Error, &last.At
		}
		all[string(federation.TargetHost(name))] = one
	}
	for _, target := range slices.Sorted(maps.Keys(all)) {
		one := all[target]
		if b, is := waiting[target]; is {
			one.Waiting, one.Oldest, one.LastError = b.Waiting, &b.Oldest, cmp.Or(b.LastError, one.LastError)
			one.FailedAt = cmp.Or(b.FailedAt, one.FailedAt)
		}
		out.Links = append(out.Links, one)
	}
	return out, nil
}

// Routes are the call of operators.
func (l Lister) Routes() []wire.Route {
	return []wire.Route{{
		Method: "GET", Path: "/ops/mail/links", Auth: wire.Viewer, Answer: Links{},
		Summary: "List other providers and hosts, the queues to them and the last error",
		Handle:  wire.Answer(http.StatusOK, func(r *http.Request) (Links, error) { return l.List(r.Context()) }),
	}}
}
