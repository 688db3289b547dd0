package homes_test

import (
	"testing"

	"signalbox/internal/mail/links"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/testbed"
)

// TestOperatorsSeeWhatWaitsForAHost: and why it does not arrive, until it has.
func TestOperatorsSeeWhatWaitsForAHost(t *testing.T) {
	eachMesh(t, 2, func(t *testing.T, m *mailtest.Mesh) {
		a, b := m.Start(0), m.Start(1)
		ann, ben := a.Register("ann", "acme"), b.Register("ben", "acme")
		a.Stop()
		ben.Send(ann.Address, "Hello", "one")
		ben.Send(ann.Address, "Hello", "two")
		link := func() links.Link {
			var all links.Links
			token, _ := b.Operator("ines")
			b.Want(200, token, "GET /ops/mail/links", "", &all)
			if len(all.Links) != 1 || all.Host != "host-b" {
				t.Fatalf("%+v", all)
			}
			return all.Links[0]
		}
		if got := link(); got.Name != "host-a" || got.Kind != "host" || !got.Registrar || got.Waiting != 2 ||
			got.LastError == "" || got.FailedAt == nil || got.Oldest == nil {
			t.Errorf("%+v", got)
		}
		m.Start(0)
		testbed.Until(t, "both", func() bool {
			all, err := b.Mail.Links.List(t.Context())
			return err == nil && all.Links[0].Waiting == 0
		})
	})
}
