package mail

import (
	"context"
	"fmt"
	"strings"
	"time"

	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// Risk counts what an agent sent in the last 24 hours. A message is in one of the counts at most;
// Total has them all.
type Risk struct {
	Total       int64 `json:"total_messages"`
	Blocked     int64 `json:"blocked"`
	Quarantined int64 `json:"quarantined"`
	Flagged     int64 `json:"flagged"`
}

// score is the protocol's formula (MSG-52), for a hundred messages; it can exceed 100.
func (r Risk) score() float64 {
	if r.Total == 0 {
		return 0
	}
	return float64(3*r.Blocked+2*r.Quarantined+r.Flagged) / float64(r.Total) * 100
}

// level is the protocol's word for a score.
func (r Risk) level() string {
	switch s := r.score(); {
	case s <= 10:
		return "low"
	case s <= 30:
		return "medium"
	case s <= 60:
		return "high"
	}
	return "critical"
}

// enoughToJudge is how many messages it takes before a score has a consequence: one refusal in
// two messages is no pattern.
const enoughToJudge = 20

// RiskReport is the answer to GET /v1/agents/{id}/risk.
type RiskReport struct {
	AgentID    string  `json:"agent_id"`
	Score      float64 `json:"risk_score"`
	Level      string  `json:"risk_level"`
	Window     string  `json:"window"`
	Breakdown  Risk    `json:"breakdown"`
	Suspended  bool    `json:"suspended"`
	ComputedAt string  `json:"computed_at"`
}

// Risk reports the risk of an agent that the calling operator may see.
func (m *Mail) Risk(ctx context.Context, name string) (RiskReport, error) {
	a, err := m.Directory.Agent(ctx, name)
	if err != nil {
		return RiskReport{}, err
	}
	risk, err := m.risk(ctx, a.ID)
	if err != nil {
		return RiskReport{}, err
	}
	return RiskReport{a.ID, risk.score(), risk.level(), "24h", risk, a.Suspended, amp.Stamp(m.core.Now())}, nil
}

// risk counts what an agent sent in the last day.
func (m *Mail) risk(ctx context.Context, agentID string) (Risk, error) {
	var r Risk
	// The window begins at an entry and not at a time, so that an index by entry can be used.
	since, err := m.core.Ledger.SeqBefore(ctx, m.core.Now().Add(-24*time.Hour))
	if err != nil {
		return r, err
	}
	err = m.core.DB.QueryRow(ctx,
		`SELECT count(*), COALESCE(SUM(CASE WHEN quarantine <> '' THEN 1 ELSE 0 END), 0),
COALESCE(SUM(CASE WHEN flags <> '' AND quarantine = '' THEN 1 ELSE 0 END), 0)
FROM mail_party p JOIN mail_message m ON m.seq = p.seq WHERE p.agent = $1 AND p.seq > $2 AND m.sender = $1`,
		[]any{agentID, since}, &r.Total, &r.Quarantined, &r.Flagged)
	if err == nil {
		err = m.core.DB.QueryRow(ctx, "SELECT count(*) FROM mail_blocked WHERE sender = $1 AND seq > $2",
			[]any{agentID, since}, &r.Blocked)
	}
	r.Total += r.Blocked
	return r, err
}

// suspendFor is how long an agent of critical risk is suspended.
const suspendFor = time.Hour

// suspendIfCritical suspends an agent for an hour if its risk is critical. It is called after a message was
// refused or held, and never fails the call: a message must not be lost because of statistics.
func (m *Mail) suspendIfCritical(ctx context.Context, who roster.Identity) {
	if strings.HasPrefix(who.ID, "remote:") {
		return // its provider answers for it
	}
	risk, err := m.risk(ctx, who.ID)
	if err == nil && risk.Total >= enoughToJudge && risk.level() == "critical" {
		_, err = m.core.Roster.Suspend(ctx, roster.Identity{}, who.Workspace, who.ID,
			fmt.Sprintf("risk score %.0f", risk.score()), m.core.Now().Add(suspendFor))
	}
	if err != nil && ctx.Err() == nil {
		m.core.Log.Warn("cannot compute the risk of an agent", "agent", who.Name, "error", err.Error())
	}
}
