package gate

import (
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/rulebook"
)

// Readers tell rules of gates that people rejected.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{"gate.resolved": func(e *ledger.Entry) (rulebook.Reading, error) {
		var b resolved
		if err := e.Decode(&b); err != nil || b.Status != Rejected {
			return rulebook.Reading{}, err
		}
		return rulebook.Reading{Facts: []rulebook.Fact{{Agent: b.Agent, What: "rejections", N: 1}}}, nil
	}}
}
