package homes_test

import (
	"testing"

	"signalbox/internal/mail"
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
		link := func() mail.Link {
			var links mail.Links
			token, _ := b.Operator("ines")
			b.Want(200, token, "GET /ops/mail/links", "", &links)
			if len(links.Links) != 1 || links.Host != "host-b" {
				t.Fatalf("%+v", links)
			}
			return links.Links[0]
		}
		if got := link(); got.Name != "host-a" || got.Kind != "host" || !got.Registrar || got.Waiting != 2 ||
			got.LastError == "" || got.FailedAt == nil || got.Oldest == nil {
			t.Errorf("%+v", got)
		}
		m.Start(0)
		testbed.Until(t, "both", func() bool {
			links, err := b.Mail.Links(t.Context())
			return err == nil && links.Links[0].Waiting == 0
		})
	})
}
