package signal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// registrations is the origin of gates that grant trust. It differs from Name so that grantTrust,
// and not the webhook of signals, follows from their resolution.
const registrations = "amp-registration"

// registered is the body of agent.registered. The subject is the agent's id.
type registered struct {
	behalf.Of
	Trust        string   `json:"trust"` // the level it asks for, "" for none
	Capabilities []string `json:"capabilities"`
	Gate         string   `json:"gate,omitempty"` // decides about the trust; "" if none is needed
	Message      wire.Raw `json:"message"`
}

const (
	maxCapabilities = 100
	maxCapability   = 128 // characters
)

// takeRegistration records what an agent says it can do. A trust level above its own opens a gate, and an
// operator grants it or does not (SIG-43); a level it already has is answered at once. While
// a gate for the same level waits, the agent is answered with that one (SIG-44).
func (s *Signals) takeRegistration(ctx context.Context, who roster.Identity, f *fields) (Received, error) {
	name := f.kebabName("agent_id", "resume-tailor")
	trust := f.Word("trust_level", roster.TrustLevels...)
	capabilities := f.Texts("capabilities", maxCapabilities, maxCapability, "send_mail")
	f.metadata()
	if err := f.err(); err != nil {
		return Received{}, err
	}
	if err := inScope(who, name); err != nil {
		return Received{}, err
	}
	found, under, err := s.core.Book.Behalf(ctx, who, f.named.Claim, f.named.User)
	if err == nil && under.Refused {
		err = fault.New(fault.Forbidden, "%s", under.Reason).About("delegation")
	}
	if err != nil {
		return Received{}, err
	}
	body := registered{Of: rulebook.Of(found, under), Trust: trust, Capabilities: capabilities, Message: f.body}
	var due gate.Prepared
	if trustRank(trust) > trustRank(who.Trust) {
		body.Gate = gate.NewID()
		o := askForTrust(who, body)
		o.Origin.Run = s.core.AskedBy(ctx, body.Of, who, "")
		if due, err = gate.Prepare(o); err != nil {
			return Received{}, err
		}
	}
	waiting := "" // the open gate of an earlier registration for the same level
	err = s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		waiting = "" // the function may run twice
		err := tx.QueryRow("SELECT gate FROM registration WHERE agent = $1 AND trust = $2 AND gate <> ''",
			[]any{who.ID, trust}, &waiting)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		last := body
		if last.Gate != "" && waiting != "" {
			pending, err := s.core.Gates.Waits(tx, waiting)
			if err != nil {
				return err
			}
			if pending {
				last.Gate = waiting
			} else {
				waiting = ""
			}
		}
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindRegistered, Actor: who.Actor(), Subject: who.ID,
			Body: last,
		})
		if last.Gate != "" && last.Gate != waiting {
			due.Open(tx, last.Gate, who.Workspace, "registration:"+who.ID)
		}
		return nil
	})
	if err != nil {
		return Received{}, err
	}
	if body.Gate == "" {
		return Received{Answer: answer("", outcome{gate.Approved, "Registered; the trust level is " + who.Trust})}, nil
	}
	if waiting != "" {
		body.Gate = waiting
	}
	return Received{Answer: answer(body.Gate, outcome{gate.Pending, awaiting})}, nil
}

// trustRank orders trust levels; -1 for a level that does not exist, such as "".
func trustRank(trust string) int { return slices.Index(roster.TrustLevels, trust) }

// askForTrust is the gate that an operator decides. Its reference is the level, which grantTrust
// reads back.
func askForTrust(who roster.Identity, r registered) gate.Opening {
	summary := fmt.Sprintf("%s is %s and asks to be %s.", who.Name, who.Trust, r.Trust)
	if len(r.Capabilities) > 0 {
		summary += " It says that it can: " + strings.Join(r.Capabilities, ", ") + "."
	}
	return gate.Opening{
		Project: DefaultProject, Agent: who.ID, AgentName: who.Name, Requester: who.Actor(), Risk: "high", Of: r.Of,
		Origin: gate.Origin{Protocol: registrations, Reference: r.Trust, Outlasts: true},
		Shown: gate.Shown{
			Title: who.Name + " asks for the trust level " + r.Trust, Summary: summary,
			ProposedAction: "Give " + who.Name + " the trust level " + r.Trust + ".",
		},
	}
}

// grantTrust gives the agent the trust that it asked for, in the transaction that resolves the gate:
// approval and trust cannot come apart.
func (s *Signals) grantTrust(tx *ledger.Tx, g gate.Gate) error {
	if g.Status != gate.Approved {
		return nil
	}
	return s.core.Roster.Grant(tx, "operator:"+g.ResolvedBy, g.Workspace, g.AgentID(), g.Origin.Reference)
}
