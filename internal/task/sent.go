package task

import (
	"signalbox/internal/ledger"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Sent is a message to agents, as its entry has it. It is for those who bring messages to agents
// by another way than their inbox, such as mail (server/taskmail.go).
type Sent struct {
	MsgID      string
	TaskID     string
	Type       amp.Type
	To         amp.Role
	Holder     string // the id of the agent that holds the role in the task, or alone is meant; "" for none
	Generation int64  // of its lease
	Status     string // of the task
	Document   wire.Raw
}

// IsSent reports whether entries of a kind hold messages to agents. Escalations are to the admin,
// who has gates.
func IsSent(kind string) bool {
	switch kind {
	case kinds[amp.TypeDispatch], kinds[amp.TypeResult], kinds[amp.TypeRequest], kinds[amp.TypeVerdict], kindTold:
		return true
	}
	return false
}

// ReadSent reads the message in an entry for whose kind IsSent is true. The entry also holds the
// task as it stood after it, hence Holder and Status need no query.
func ReadSent(e *ledger.Entry) (*Sent, error) {
	var b recorded
	if err := e.Decode(&b); err != nil {
		return nil, err
	}
	var row messageRow
	if err := wire.UnmarshalPart(b.Record, &row); err != nil {
		return nil, err
	}
	s := &Sent{MsgID: row.MsgID, TaskID: e.Subject, Type: amp.Type(row.Type), To: amp.Role(row.To), Document: b.Record}
	if e.Kind == kindTold {
		d, err := readDecision(b.Record)
		s.Holder = d.Coordinator
		return s, err
	}
	if b.Task != nil {
		seat := b.Task.Seats[s.To]
		// A lost lease means that any agent of the role may take the message.
		if s.Status = b.Task.Status(); !seat.Lost {
			s.Holder, s.Generation = seat.Agent, seat.Generation
		}
	}
	return s, nil
}
