package web

import (
	"sync"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// provenSession finds the operator whose session has the hash. The row finds it; that it was opened, and not ended since,
// is read from the entries.
func (w *Web) provenSession(p ledger.Prover, hash string) (operator string, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		rows, err := store.All(p.Query, func(scan store.Scan) (s signedIn, err error) {
			err = scan(&s.operator, &s.expires)
			return s, err
		}, "SELECT operator, expires_at FROM web_session WHERE hash = $1", hash)
		if err != nil {
			return false, err
		}
		// Expired rows are deleted when the next session is opened, so the time is checked here.
		if len(rows) == 0 || w.Now().UnixMicro() >= rows[0].expires {
			return false, sessionEnded()
		}
		operator = rows[0].operator
		return w.sessions.open(p, hash, rows[0], w.Now())
	})
	if err == nil && !agree {
		err = p.Contradicts("web_session", operator, "a session of %s was not opened, or has ended", operator)
	}
	return operator, err
}

// signedIn is a session as it was opened.
type signedIn struct {
	operator string
	expires  int64 // microseconds
	seq      int64 // the entry that opened it
}

// sessions remembers which entries have opened sessions, by the hashes of their tokens. That does not change, so only
// what has happened since is read again.
type sessions struct {
	mu    sync.Mutex
	known map[string]signedIn
}

// maxSessions bounds the memory; a full one is emptied.
const maxSessions = 10_000

// open reports whether the session of a row was opened as it says there, and has not ended.
func (s *sessions) open(p ledger.Prover, hash string, row signedIn, now time.Time) (bool, error) {
	found, err := s.find(p, hash, row, now)
	row.seq = found.seq
	if err != nil || found != row {
		return false, err
	}
	since, err := p.Entries(ledger.Query{
		After: found.seq, Subject: found.operator, Kinds: []string{kindClosed, kindPasswordSet, "operator.removed"},
	})
	for i := range since {
		b := closed{Session: hash} // what else ends sessions ends all of the operator's
		if since[i].Kind == kindClosed && err == nil {
			err = since[i].Decode(&b)
		}
		if b.Session == hash {
			return false, err
		}
	}
	return err == nil, err
}

// find finds the entry that opened a session among the newest of the operator, zero if there is none.
func (s *sessions) find(p ledger.Prover, hash string, row signedIn, now time.Time) (signedIn, error) {
	s.mu.Lock()
	found, known := s.known[hash]
	s.mu.Unlock()
	q := ledger.Query{Subject: row.operator, Kinds: []string{kindOpened}, Newest: true, Limit: 100}
	for !known {
		page, err := p.Entries(q)
		if err != nil {
			return found, err
		}
		for i := range page {
			var b opened
			if err := page[i].Decode(&b); err != nil {
				return found, err
			}
			if b.Session == hash {
				found, known = signedIn{page[i].Subject, b.Expires, page[i].Seq}, true
			}
		}
		if len(page) < q.Limit || page[0].At.Before(now.Add(-sessionLife)) {
			break
		}
		q.UpTo = page[0].Seq - 1
	}
	if known {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.known == nil || len(s.known) >= maxSessions {
			s.known = map[string]signedIn{}
		}
		s.known[hash] = found
	}
	return found, nil
}

// usedBefore reports whether a code has opened a session. The table has the codes that were used; one that is not
// there is looked for among the newest entries too, as far back as a code can be good.
func usedBefore(p ledger.Prover, operator, hash string, now time.Time) (bool, error) {
	rows, err := store.All(p.Query, store.Text, "SELECT hash FROM web_code WHERE hash = $1", hash)
	if err != nil || len(rows) > 0 {
		return true, err
	}
	last, err := p.Entries(ledger.Query{Subject: operator, Kinds: []string{kindOpened}, Newest: true, Limit: 100})
	for i := len(last) - 1; i >= 0 && err == nil && !last[i].At.Before(now.Add(-codeLife)); i-- {
		var b opened
		if err = last[i].Decode(&b); err == nil && b.Code == hash {
			return true, p.Contradicts("web_code", operator, "a code of %s that was used is not there", operator)
		}
	}
	return false, err
}
