package directory

import (
	"testing"

	"signalbox/internal/mail/amp"
)

func TestPoliciesOfAgents(t *testing.T) {
	t.Parallel()
	bob := amp.Address{Name: "bob", Tenant: "acme", Provider: "x.y"}
	for pattern, want := range map[string]bool{
		"bob@acme.x.y": true, "Bob@ACME.x.y": true, "*@acme.x.y": true, "*@*.x.y": true, "*@*": true, "bob@*": true,
		"carol@acme.x.y": false, "*@other.x.y": false, "*@*.z": false, "*": false, "bob": false, "*@*y": false, "": false,
	} {
		p := &CommunicationPolicy{Mode: "restricted", AllowedRecipients: []string{pattern}}
		if p.Allows(bob) != want {
			t.Errorf("%q: %v", pattern, !want)
		}
	}
	if !(*CommunicationPolicy)(nil).Allows(bob) || !(&CommunicationPolicy{Mode: "open"}).Allows(bob) ||
		(&CommunicationPolicy{Mode: "restricted"}).Allows(bob) {
		t.Error("a policy without names")
	}
}
