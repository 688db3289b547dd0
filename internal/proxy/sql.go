package proxy

import (
	"maps"
	"slices"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/proxy/vault"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Migrations make the tables. All but proxy_vault follow from the ledger. The second step moves the
// holds of version 0.1 to the approvals that all protocols share.
var Migrations = store.Migrations{Package: "proxy", Steps: []string{`
CREATE TABLE proxy_agent (
  agent {text} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};

CREATE TABLE proxy_provider_key (
  sum {text} PRIMARY KEY,
  agent {text} NOT NULL
) {strict};

CREATE TABLE proxy_hold (
  fingerprint {text} PRIMARY KEY,
  gate {text} NOT NULL,
  what {text} NOT NULL,
  good_for {bigint} NOT NULL,
  once {bool} NOT NULL,
  used {bool} NOT NULL,
  opened_at {bigint} NOT NULL,
  until {bigint} NOT NULL
) {strict};
CREATE INDEX proxy_hold_until ON proxy_hold (until);

CREATE TABLE proxy_call (
  agent {text} NOT NULL,
  call {text} NOT NULL,
  gate {text} NOT NULL,
  at {bigint} NOT NULL,
  PRIMARY KEY (agent, call)
) {strict};
CREATE INDEX proxy_call_at ON proxy_call (at);

CREATE TABLE proxy_thread (
  agent {text} NOT NULL,
  id {text} NOT NULL,
  tools {blob} NOT NULL,
  at {bigint} NOT NULL,
  PRIMARY KEY (agent, id)
) {strict};
CREATE INDEX proxy_thread_at ON proxy_thread (at);

CREATE TABLE proxy_vault (
  provider {text} NOT NULL,
  workspace {text} NOT NULL,
  sealed {blob} NOT NULL,
  hint {text} NOT NULL,
  set_at {bigint} NOT NULL,
  PRIMARY KEY (provider, workspace)
) {strict};
`, `
INSERT INTO gate_approval (agent, key, digest, gate, good_for, uses, until_at)
SELECT coalesce(r.agent, w.agent), 'proxy', h.fingerprint, h.gate, h.good_for, CASE WHEN NOT h.once THEN -1 WHEN h.used THEN 0 ELSE 1 END, h.until
FROM proxy_hold h JOIN ` + ledger.EntryTable + ` ON e.subject = h.gate AND e.subject <> '' AND e.kind = 'gate.opened'
LEFT JOIN gate_resolved r ON r.opened_seq = e.seq
LEFT JOIN gate_waiting w ON w.workspace = e.workspace AND w.risk IN (0, 1, 2) AND w.opened_seq = e.seq;
DROP TABLE proxy_hold;
`, meter.Migration}}

// The kinds of entries, beside those of package meter. They are part of the stored format: a new meaning is a new kind.
const (
	kindKept      = "proxy.kept"       // a reply that waits for a decision
	kindHeld      = "proxy.held"       // a call that has a gate
	kindReleased  = "proxy.released"   // what was approved went on
	kindReturned  = "proxy.returned"   // what went on has not arrived
	kindTold      = "proxy.told"       // the model hears of a rejection
	kindReceipted = "proxy.receipted"  // what was approved has a result
	kindThreaded  = "proxy.threaded"   // a conversation that the provider keeps
	kindSet       = "proxy.configured" // an agent's settings
	kindKey       = "proxy.key_set"    // of a provider, in the vault
)

// Projection is what the entries do to the tables. The vault is not among them: a rebuild cannot make
// it, and leaves it alone.
func Projection() ledger.Projection {
	p := ledger.Projection{
		Name: "proxy",
		Tables: ledger.Tables(slices.Concat([]string{
			"proxy_agent (agent)", "proxy_provider_key (sum)", "proxy_call (agent, call)",
			"proxy_thread (agent, id)",
		}, meter.Tables)...),
		Apply: map[string]ledger.Apply{
			kindHeld:     ledger.ApplyBody(applyHeld),
			kindReleased: ledger.ApplyBody(applyReleased),
			kindReturned: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *returned) {
				askedAs(b.Agent, b.Call).ReturnUse(tx, e.Subject)
			}),
			kindReceipted: ledger.ApplyBody(applyReceipted),
			kindThreaded:  ledger.TryBody(applyThreaded),
			kindSet:       ledger.ApplyBody(applySet),
			kindKey:       applyKey,
			vault.Rotated: vault.Apply,
		},
		Erasable: []string{kindKey},
	}
	maps.Copy(p.Apply, meter.Apply())
	return p
}

// microsBefore is the moment d before an entry, in microseconds. Apply functions take time from the entry and
// not from the clock, so that a rebuild does the same.
func microsBefore(e *ledger.Entry, d time.Duration) int64 { return e.At.Add(-d).UnixMicro() }

// applyHeld stores the approval that the call waits for, and whose results are expected. Old rows of
// the second kind are removed on the way, which needs no job of its own.
func applyHeld(tx *store.Tx, e *ledger.Entry, b *held) {
	gate.SetApproval(tx, b.approval(e.Subject, e.At), e.At)
	for _, one := range b.Calls {
		tx.Exec("INSERT INTO proxy_call (agent, call, gate, at) VALUES ($1, $2, $3, $4) ON CONFLICT (agent, call) DO "+
			"UPDATE SET gate = excluded.gate, at = excluded.at", b.Agent, one, b.Gate, e.At.UnixMicro())
	}
	tx.Exec("DELETE FROM proxy_call WHERE at < $1", microsBefore(e, resultsAwaited))
}

// applyReleased takes a use of the approval in the transaction of the release, so that one for a
// single use is used once on any number of nodes.
func applyReleased(tx *store.Tx, _ *ledger.Entry, b *released) {
	if !b.Again {
		gate.TakeUse(tx, b.Gate)
	}
}

// applyReceipted removes calls whose results are known from those that are expected.
func applyReceipted(tx *store.Tx, _ *ledger.Entry, b *receipted) {
	for _, one := range b.Calls {
		tx.Exec("DELETE FROM proxy_call WHERE agent = $1 AND call = $2", b.Agent, one)
	}
}

// applyThreaded stores the tools of a conversation under every id by which it can be continued.
func applyThreaded(tx *store.Tx, e *ledger.Entry, b *threaded) error {
	tools, err := wire.Marshal(b.Tools)
	if err != nil {
		return err
	}
	for _, id := range b.IDs {
		tx.Exec("INSERT INTO proxy_thread (agent, id, tools, at) VALUES ($1, $2, $3, $4) ON CONFLICT (agent, id) DO UPDATE "+
			"SET tools = excluded.tools, at = excluded.at", b.Agent, id, tools, e.At.UnixMicro())
	}
	tx.Exec("DELETE FROM proxy_thread WHERE at < $1", microsBefore(e, threadsKept))
	return nil
}

// applySet points to the agent's settings and replaces its provider's keys. The primary key of
// proxy_provider_key keeps a key with one agent (PRX-7).
func applySet(tx *store.Tx, e *ledger.Entry, b *configured) {
	tx.Exec("INSERT INTO proxy_agent (agent, seq) VALUES ($1, $2) ON CONFLICT (agent) DO UPDATE SET seq = excluded.seq",
		e.Subject, e.Seq)
	tx.Exec("DELETE FROM proxy_provider_key WHERE agent = $1", e.Subject)
	for _, sum := range b.ProviderKeys {
		tx.Exec("INSERT INTO proxy_provider_key (sum, agent) VALUES ($1, $2)", sum, e.Subject)
	}
}
