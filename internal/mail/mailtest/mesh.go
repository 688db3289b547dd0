package mailtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"signalbox/internal/mail"
	"signalbox/internal/mail/federation"
	"signalbox/internal/wire"
)

// Mesh is hosts of one provider, host-a, host-b and so on, each with a database of its own. A host may be started,
// stopped and started again; the others know where it is all the time.
type Mesh struct {
	t         testing.TB
	databases []string
	ports     []string
	Wait      time.Duration // how long a sender waits
}

// NewMesh makes a mesh of one host for each database. Nothing runs before Start.
func NewMesh(t testing.TB, databases ...string) *Mesh {
	t.Helper()
	m := &Mesh{t: t, databases: databases, Wait: 5 * time.Second}
	for range databases {
		m.ports = append(m.ports, freePort(t))
	}
	return m
}

// freePort is an address where nobody listens, and which no connection gets: it is below the ports that the system
// gives to those. A host that is started again needs it once more.
func freePort(t testing.TB) string {
	t.Helper()
	for {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000)))
		if l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
}

// Name is the id of a host.
func (m *Mesh) Name(i int) string { return "host-" + string(rune('a'+i)) }

// Secret is the secret of two hosts.
func (m *Mesh) Secret(i, j int) string {
	return fmt.Sprintf("a secret of %s and %s", m.Name(min(i, j)), m.Name(max(i, j)))
}

// Start starts a host on its database.
func (m *Mesh) Start(i int, options ...func(*mail.Options)) *Node {
	m.t.Helper()
	hosts := map[string]federation.Host{}
	for j := range m.databases {
		if j != i {
			hosts[m.Name(j)] = federation.Host{URL: "http://" + m.ports[j], Secret: wire.NewSecret(m.Secret(i, j))}
		}
	}
	return StartAt(m.t, m.databases[i], m.ports[i], append([]func(*mail.Options){func(o *mail.Options) {
		o.Mesh, o.WebhookWait = federation.Mesh{Host: m.Name(i), Hosts: hosts}, m.Wait
	}}, options...)...)
}
