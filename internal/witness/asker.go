package witness

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/notes"
	"signalbox/internal/store"
)

// Peer is a witness that is asked: its key, and the address before add-checkpoint.
type Peer struct {
	*notes.Witness
	URL string
}

// ParsePeers reads witnesses as KEY@URL.
func ParsePeers(list []string) (peers []Peer, err error) {
	for _, text := range list {
		key, address, ok := strings.Cut(text, "@")
		w, err := notes.ParseWitness(key)
		if err != nil {
			return nil, err
		}
		if !ok || !strings.HasPrefix(address, "http://") && !strings.HasPrefix(address, "https://") {
			return nil, fault.New(fault.InvalidRequest, "The witness %s has no address: write KEY@https://HOST/PREFIX.", w.Name())
		}
		for _, p := range peers {
			if p.Name() == w.Name() {
				return nil, fault.New(fault.InvalidRequest, "The witness %s is listed twice.", w.Name())
			}
		}
		peers = append(peers, Peer{w, strings.TrimSuffix(address, "/")})
	}
	return peers, nil
}

const (
	// patience is how long a witness may take to answer.
	patience = 10 * time.Second
	// longestPause is the longest one between two tries with a witness that is away.
	longestPause = 5 * time.Minute
	// kept is how many of our checkpoints are kept with their cosignatures.
	kept = 100
	// maxAnswer is the longest answer of a witness that is read.
	maxAnswer = 64 << 10
)

// Options are what an Asker works with.
type Options struct {
	DB     *store.DB
	Ledger *ledger.Ledger
	Alarms *alarm.Alarms
	Peers  []Peer
	Quorum int           // how many witnesses have to cosign a checkpoint; 0 is none
	Every  time.Duration // the time between two rounds
	Bound  time.Duration // how long the quorum may not be met before that is a problem
	Client *http.Client
	Now    func() time.Time
	Log    *slog.Logger
}

// State is how one witness is.
type State struct {
	Name    string     `json:"name"`
	Size    int64      `json:"size"` // of the checkpoint that it has cosigned last
	At      *time.Time `json:"at,omitempty"`
	Problem string     `json:"problem,omitempty"`
}

// Asker has witnesses cosign our checkpoints. It is safe for concurrent use; one node of a database asks at a time.
type Asker struct {
	Options

	mu     sync.Mutex
	states []State
	waits  []wait
	met    time.Time // when the quorum was met last
}

// wait is the pause after a witness that did not cosign.
type wait struct {
	until time.Time
	pause time.Duration
}

// Ask makes an Asker.
func Ask(o Options) *Asker {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	a := &Asker{Options: o, waits: make([]wait, len(o.Peers)), met: o.Now()}
	for _, p := range o.Peers {
		a.states = append(a.states, State{Name: p.Name()})
	}
	return a
}

// Run asks until ctx ends.
func (a *Asker) Run(ctx context.Context) error {
	if len(a.Peers) == 0 {
		return nil
	}
	return a.Ledger.Hold(ctx, "witnesses", func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := a.Round(ctx); err != nil && ctx.Err() == nil {
				a.Log.Warn("cannot have a checkpoint cosigned; will try again", "error", err.Error())
			}
			ledger.Pause(ctx, nil, a.Every)
		}
		return nil
	})
}

// Round has every witness that is not waited for cosign the newest checkpoint, unless it has, and keeps what they
// signed.
func (a *Asker) Round(ctx context.Context) error {
	if a.Ledger.Mismatch() != nil {
		return nil
	}
	signed, size, err := a.Ledger.Signed(ctx)
	if fault.Is(err, fault.NotFound) || err == nil && size == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	before, _, err := a.at(ctx, size)
	if err != nil {
		return err
	}
	lines := make([]string, len(a.Peers))
	forks := make([]error, len(a.Peers))
	var asked sync.WaitGroup
	for i, p := range a.Peers {
		if lines[i], _ = p.Find(before); lines[i] != "" || !a.turn(i) {
			continue
		}
		asked.Go(func() {
			line, fork, err := a.cosign(ctx, i, signed, size)
			lines[i], forks[i] = line, fork
			a.note(i, size, cmp.Or(fork, err))
		})
	}
	asked.Wait()
	if fork := errors.Join(forks...); fork != nil {
		return a.forked(ctx, fork)
	}
	count := len(lines) - len(slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return s != "" }))
	if count > 0 {
		if err := a.keep(ctx, size, string(signed)+strings.Join(lines, ""), count); err != nil {
			return err
		}
	}
	return a.settle(ctx, count)
}

// turn reports whether it is time to ask a witness.
func (a *Asker) turn(i int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.Now().Before(a.waits[i].until) || a.waits[i].until.Sub(a.Now()) > longestPause
}

// note keeps what became of asking a witness.
func (a *Asker) note(i int, size int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	if err == nil {
		a.waits[i] = wait{}
		a.states[i].Size, a.states[i].At, a.states[i].Problem = size, &now, ""
		return
	}
	pause := min(max(2*a.waits[i].pause, a.Every), longestPause)
	a.waits[i] = wait{now.Add(pause), pause}
	if problem := fault.From(err).Message; problem != a.states[i].Problem {
		a.states[i].Problem = problem
		a.Log.Warn("a witness did not cosign", "witness", a.states[i].Name, "error", problem)
	}
}

// cosign asks one witness. fork is why what it has seen is not our ledger, proved with our own signature.
func (a *Asker) cosign(ctx context.Context, i int, signed []byte, size int64) (line string, fork, err error) {
	p := a.Peers[i]
	a.mu.Lock()
	old := min(a.states[i].Size, size)
	a.mu.Unlock()
	for range 3 {
		add := notes.Addition{Old: old, Signed: signed}
		if old > 0 && old < size {
			if add.Proof, err = a.Ledger.ProveConsistency(ctx, old, size); err != nil {
				return "", nil, err
			}
		}
		status, answer, err := a.call(ctx, http.MethodPost, p.URL+"/add-checkpoint", add.Encode())
		if err != nil {
			return "", nil, err
		}
		switch status {
		case http.StatusOK:
			if line, _ = p.Find(append(bytes.Clone(signed), answer...)); line == "" {
				return "", nil, fault.New(fault.VerificationFailed, "%s answered without a cosignature of its key.", p.Name())
			}
			return line, nil, nil
		case http.StatusConflict:
			seen, err := strconv.ParseInt(strings.TrimSpace(string(answer)), 10, 64)
			if err != nil || seen < 0 {
				return "", nil, fault.New(fault.VerificationFailed, "%s has seen another size, and does not say which.", p.Name())
			}
			if seen > size {
				fork, err = a.compare(ctx, p)
				return "", fork, cmp.Or(err, error(fault.New(fault.Conflict,
					"%s says that it has seen %d entries, and this ledger has %d; it does not prove it.", p.Name(), seen, size)))
			}
			old = seen
		case http.StatusUnprocessableEntity:
			fork, err = a.compare(ctx, p)
			return "", fork, cmp.Or(err, error(fault.New(fault.Conflict,
				"%s says that this ledger is not the one that it has seen; it does not prove it.", p.Name())))
		case http.StatusNotFound, http.StatusForbidden:
			return "", nil, fault.New(fault.Conflict, "%s does not witness this ledger (%d): its operator has to list the key %s.",
				p.Name(), status, a.Ledger.Key())
		default:
			return "", nil, fault.New(fault.Conflict, "%s answered with status %d.", p.Name(), status)
		}
	}
	return "", nil, fault.New(fault.Conflict, "%s cosigns another size each time.", p.Name())
}

// compare asks a witness what it has cosigned last of our ledger. Only a checkpoint that one of our own keys has signed
// counts against us: else a witness could stop the ledger with a word.
func (a *Asker) compare(ctx context.Context, p Peer) (fork, err error) {
	sum := sha256.Sum256([]byte(a.Ledger.Origin()))
	status, answer, err := a.call(ctx, http.MethodGet, p.URL+"/"+hex.EncodeToString(sum[:])+"/checkpoint", nil)
	if err != nil || status != http.StatusOK {
		return nil, err
	}
	theirs, err := a.Ledger.Keys().Open(answer)
	if err != nil {
		return nil, nil //nolint:nilerr // what our keys have not signed proves nothing
	}
	// Ours may have grown since we asked.
	_, size, err := a.Ledger.Signed(ctx)
	if err != nil {
		return nil, err
	}
	if theirs.Size > size {
		return fault.New(fault.LedgerMismatch, "The witness %s has a checkpoint over %d entries that this ledger's key has "+
			"signed, and the database has %d: the end of the ledger is gone, or somebody else signs with its key. Restore the newest backup.",
			p.Name(), theirs.Size, size), nil
	}
	if theirs.Size == 0 {
		return nil, nil
	}
	ours, err := a.Ledger.Prove(ctx, theirs.Size, theirs.Size)
	if err != nil || ours.Root == theirs.Root {
		return nil, err
	}
	return fault.New(fault.LedgerMismatch, "The witness %s has a checkpoint over %d entries that this ledger's key has "+
		"signed, and these entries have another root here: there are two histories. Keep both, and find out who has the key.",
		p.Name(), theirs.Size), nil
}

// call asks a witness. A redirect is an answer like any other: who is asked is in the configuration.
func (a *Asker) call(ctx context.Context, method, address string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	res, err := a.Client.Do(r)
	if err != nil {
		return 0, nil, fault.Wrap(err, fault.Conflict, "It cannot be reached at %s.", address)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	return res.StatusCode, answer, err
}

// forked stops the ledger: its history is not what a witness has seen, and everything more would be added to the wrong
// one (LED-25).
func (a *Asker) forked(ctx context.Context, fork error) error {
	found := fault.From(fork)
	_ = a.Alarms.Raise(ctx, alarm.Alarm{
		Kind: "witness_fork", Title: "A witness has seen another history of this ledger", Detail: found.Message +
			" Nothing is written from now on.",
	})
	a.Ledger.Refuse(found)
	return fork
}

// keep keeps a checkpoint with its cosignatures, and drops the oldest ones.
func (a *Asker) keep(ctx context.Context, size int64, text string, count int) error {
	return a.DB.Bookkeep(ctx, lock, func(tx *store.Tx) error {
		tx.Exec("INSERT INTO witness_checkpoint (size, note, cosigned, at) VALUES ($1, $2, $3, $4) ON CONFLICT (size) "+
			"DO UPDATE SET note = excluded.note, cosigned = excluded.cosigned, at = excluded.at", size, text, count, a.Now().UnixMicro())
		tx.Exec("DELETE FROM witness_checkpoint WHERE size <= (SELECT size FROM witness_checkpoint ORDER BY size DESC LIMIT 1 "+
			"OFFSET $1) AND size <> (SELECT coalesce(max(size), 0) FROM witness_checkpoint WHERE cosigned >= $2)", kept, a.needed())
		return nil
	})
}

// needed is how many cosignatures a checkpoint has to have to be served as one that was witnessed.
func (a *Asker) needed() int { return max(1, a.Quorum) }

// at is our checkpoint of a size with its cosignatures, nil if nobody has cosigned it.
func (a *Asker) at(ctx context.Context, size int64) (text []byte, count int, err error) {
	var found string
	err = a.DB.QueryRow(ctx, "SELECT note, cosigned FROM witness_checkpoint WHERE size = $1", []any{size}, &found, &count)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, nil
	}
	return []byte(found), count, store.Explain(err)
}

// settle raises the alarm about a quorum that is not met for too long.
func (a *Asker) settle(ctx context.Context, count int) error {
	a.mu.Lock()
	if count >= a.Quorum {
		a.met = a.Now()
	}
	a.mu.Unlock()
	problem := a.Problem()
	if problem == "" {
		return nil
	}
	return a.Alarms.Raise(ctx, alarm.Alarm{
		Kind: "witness_quorum", Title: "Too few witnesses cosign the checkpoints of the ledger", Detail: problem,
	})
}

// Problem says that the quorum was not met for longer than Bound, "" if it was.
func (a *Asker) Problem() string {
	if a.Quorum == 0 {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	since := a.Now().Sub(a.met)
	if since < a.Bound {
		return ""
	}
	var why []string
	for _, s := range a.states {
		if s.Problem != "" {
			why = append(why, s.Name+": "+s.Problem)
		}
	}
	return fmt.Sprintf("no checkpoint has the cosignatures of %d witnesses since %s. %s", a.Quorum,
		a.met.UTC().Format(time.DateTime), strings.Join(why, " "))
}

// States are how the witnesses are, as this node has found.
func (a *Asker) States() []State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.states)
}

// Witnessed is the newest checkpoint that the quorum has cosigned, with the cosignatures, and its size.
func (a *Asker) Witnessed(ctx context.Context) (text []byte, size int64, err error) {
	var found string
	err = a.DB.QueryRow(ctx, "SELECT size, note FROM witness_checkpoint WHERE cosigned >= $1 ORDER BY size DESC LIMIT 1",
		[]any{a.needed()}, &size, &found)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, fault.New(fault.NotFound, "No checkpoint has the cosignatures of %d witnesses yet.", a.needed())
	}
	return []byte(found), size, store.Explain(err)
}
