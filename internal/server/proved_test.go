package server_test

import (
	"fmt"
	"strings"
	"testing"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
)

// TestProofFilesOfAGateShowWhatWasApproved: with nothing but the key.
func TestProofFilesOfAGateShowWhatWasApproved(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		id := b.signal(b.agentKey("tailor", "default"), "tailor", "r-1")
		var g gate.Gate
		b.ops(200, "GET /ops/gates/"+id, "", &g)
		b.ops(200, "POST /ops/gates/"+id+"/approve", fmt.Sprintf(`{"digest":%q}`, g.Digest), nil)
		key := b.plain("/ledger/key")
		var page ledger.EntryPage
		b.ops(200, "GET /ops/ledger?limit=50&subject="+id, "", &page)
		var entries []ledger.Entry
		for _, one := range page.Entries {
			if !strings.HasPrefix(one.Kind, "gate.") {
				continue
			}
			file := b.plain(fmt.Sprintf("/ops/ledger/%d/proof?body=true", one.Seq))
			e, _, err := ledger.VerifyProof([]byte(file), key)
			if err != nil || e.Body == nil {
				t.Fatalf("%s: %v", one.Kind, err)
			}
			entries = append(entries, e)
		}
		all, err := gate.Prove(entries)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d gates, %v", len(all), err)
		}
		p := all[0]
		if p.Status != gate.Approved || p.Title != g.Title || p.Digest != g.Digest || p.ResolvedAt == nil ||
			len(p.Votes) != 1 || !p.Votes[0].Same || !p.Votes[0].Approve || p.Votes[0].Operator != "admin" {
			t.Errorf("%+v", p)
		}
		if none, err := gate.Prove(entries[1:]); err != nil || len(none) != 0 {
			t.Errorf("a vote for what nobody has proved shows %+v, %v", none, err)
		}
		if part, err := gate.Prove(entries[:1]); err != nil || len(part) != 1 || part[0].Status != gate.Pending {
			t.Errorf("what was opened alone shows %+v, %v", part, err)
		}
	})
}
