package drift

import (
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Audit checks the times of the entries of a ledger, with nothing but those entries: they never go back, but for an
// entry clock.healed, which says from when. It is for an export, whose entries VerifyExport proves.
type Audit struct {
	Healed int64         // how often time has stepped back
	Most   time.Duration // the largest such step

	last time.Time
}

// Entry takes the next entry of the ledger.
func (a *Audit) Entry(e *ledger.Entry) error {
	back := a.last.Sub(e.At)
	was := a.last
	a.last = e.At
	if e.Kind != ledger.Healed {
		if back > 0 {
			return fault.New(fault.VerificationFailed,
				"Entry %d (%s) is %s earlier than the one before it, and is not one by which the clock was healed.", e.Seq, e.Kind,
				back)
		}
		return nil
	}
	a.Healed++
	a.Most = max(a.Most, back)
	if e.Body == nil {
		return nil
	}
	var b ledger.HealedBody
	if err := e.Decode(&b); err != nil {
		return fault.Wrap(err, fault.VerificationFailed, "Entry %d (%s) cannot be read.", e.Seq, e.Kind)
	}
	if back <= 0 || b.Was != was.UnixMicro() {
		return fault.New(fault.VerificationFailed, "Entry %d (%s) does not say by how much time steps back there.", e.Seq,
			e.Kind)
	}
	return nil
}
