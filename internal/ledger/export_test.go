package ledger

import "time"

// Patience sets how long a commit, and looking into an unknown outcome, may take.
// Call it while nothing is being written.
func (l *Ledger) Patience(commit, settle time.Duration) {
	l.commitFor, l.settleFor = commit, settle
}

// Text is the statement that answers a query.
func (q Query) Text() (string, []any) { return q.text() }

// ForgetRecent makes followers read the database.
func ForgetRecent(l *Ledger) {
	l.recent.mu.Lock()
	defer l.recent.mu.Unlock()
	l.recent.entries, l.recent.bytes = nil, 0
}
