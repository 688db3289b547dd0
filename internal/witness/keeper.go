package witness

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger/notes"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Logs are the logs that are witnessed: their keys by origin. A log whose key was replaced has several.
type Logs map[string]notes.Trusted

// ParseLogs reads the verifier keys of logs.
func ParseLogs(vkeys []string) (Logs, error) {
	logs := Logs{}
	for _, text := range vkeys {
		v, err := notes.Verifier(text)
		if err != nil {
			return nil, err
		}
		logs[v.Name()] = append(logs[v.Name()], v)
	}
	return logs, nil
}

// Keeper is this server as a witness of other logs. It is safe for concurrent use, and on any number of nodes that
// have the same cosigner.
type Keeper struct {
	DB       *store.DB
	Alarms   *alarm.Alarms
	Cosigner *notes.Cosigner
	Logs     Logs
	Now      func() time.Time
	Log      *slog.Logger
}

// Answer is what add-checkpoint is answered with: a status of tlog-witness, and a text.
type Answer struct {
	Status int
	Text   string
}

func refuse(status int, err error) Answer { return Answer{status, fault.From(err).Message + "\n"} }

// Add takes a checkpoint, and cosigns it if all that was cosigned before is in it. What is compared and what is kept
// is one transaction, which is on disk before the answer is given.
func (k *Keeper) Add(ctx context.Context, body []byte) (Answer, error) {
	a, err := notes.ReadAddition(body)
	if err != nil {
		return refuse(http.StatusBadRequest, err), nil
	}
	c, err := notes.Unverified(a.Signed)
	if err != nil {
		return refuse(http.StatusBadRequest, err), nil
	}
	keys, known := k.Logs[c.Origin]
	if !known {
		return Answer{http.StatusNotFound, "This witness does not know the log.\n"}, nil
	}
	text, checked, err := keys.Open(a.Signed)
	if err != nil {
		return Answer{http.StatusForbidden, "The checkpoint is not signed by a key of the log that this witness trusts.\n"}, nil
	}
	// What is verified is what was read: the text of a note may have empty lines in it, that of a checkpoint has none.
	if !strings.HasPrefix(text, c.Text()) || strings.Contains(text, "\n\n") {
		return Answer{http.StatusBadRequest, "The note is not a checkpoint.\n"}, nil
	}
	if a.Old > c.Size {
		return Answer{http.StatusBadRequest, "The old size is larger than the checkpoint's.\n"}, nil
	}
	answer, fork := Answer{}, ""
	err = k.DB.Bookkeep(ctx, lock, func(tx *store.Tx) error {
		answer, fork = Answer{}, ""
		size, root, err := cosignedLast(tx, c.Origin)
		if err != nil {
			return err
		}
		if a.Old != size {
			answer = Answer{http.StatusConflict, strconv.FormatInt(size, 10) + "\n"}
			return nil
		}
		if err := a.Follows(c, root); err != nil {
			if a.Old == c.Size && c.Root.String() != root {
				fork = fmt.Sprintf("Over %d entries it was signed with the root %s, and now with %s.", size, root, c.Root)
			}
			answer = refuse(http.StatusUnprocessableEntity, err)
			return nil
		}
		line := k.Cosigner.Cosign(text, k.Now())
		tx.Exec("INSERT INTO witness_log (origin, size, root, note) VALUES ($1, $2, $3, $4) ON CONFLICT (origin) DO UPDATE "+
			"SET size = excluded.size, root = excluded.root, note = excluded.note", c.Origin, c.Size, c.Root.String(), checked+line)
		answer = Answer{http.StatusOK, line}
		return nil
	})
	if err != nil {
		return Answer{}, store.Explain(err)
	}
	if fork != "" {
		k.Log.Error("A LOG THAT THIS SERVER WITNESSES HAS FORKED", "origin", c.Origin)
		err = k.Alarms.Raise(ctx, alarm.Alarm{
			Kind: "witnessed_fork", Title: "The log " + c.Origin + " has two histories, both signed with its key", Detail: fork +
				" This server has cosigned the first one, and cosigns the other never. Ask who runs the log what happened.",
		})
	}
	return answer, err
}

// cosignedLast is what was cosigned last of a log, in the transaction.
func cosignedLast(tx *store.Tx, origin string) (size int64, root string, err error) {
	err = tx.QueryRow("SELECT size, root FROM witness_log WHERE origin = $1", []any{origin}, &size, &root)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return size, root, err
}

// Seen is the checkpoint of a log that was cosigned last, with the cosignature. hash names the log: the SHA-256 of its
// origin, in hex.
func (k *Keeper) Seen(ctx context.Context, hash string) (string, error) {
	for origin := range k.Logs {
		sum := sha256.Sum256([]byte(origin))
		if hex.EncodeToString(sum[:]) != hash {
			continue
		}
		var text string
		err := k.DB.QueryRow(ctx, "SELECT note FROM witness_log WHERE origin = $1", []any{origin}, &text)
		if !errors.Is(err, sql.ErrNoRows) {
			return text, store.Explain(err)
		}
	}
	return "", fault.New(fault.NotFound, "This witness has cosigned no checkpoint of that log.")
}

// Prefix is where the calls of a witness are.
const Prefix = "/ledger/witness"

// maxBody is the longest body of add-checkpoint: 63 hashes, and a note with many signatures.
const maxBody = 256 << 10

// Routes are the calls of a witness. They need no token: a checkpoint proves itself.
func (k *Keeper) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "POST", Path: Prefix + "/add-checkpoint", Summary: "Cosign a checkpoint of a log that witness.logs names " +
				"(C2SP tlog-witness)", Media: "text/plain", RequestMedia: "application/octet-stream", Handle: k.postAdd,
			// The credential is the log's signature under the checkpoint, whoever brings it.
			Proof: []string{wire.Demanded},
		},
		{
			Method: "GET", Path: Prefix + "/{origin}/checkpoint",
			Summary: "The checkpoint of a log that was cosigned last; origin is the SHA-256 of its origin line", Media: "text/plain",
			Handle: func(w http.ResponseWriter, r *http.Request) error {
				text, err := k.Seen(r.Context(), r.PathValue("origin"))
				if err != nil {
					return err
				}
				return say(w, http.StatusOK, "text/plain; charset=utf-8", text)
			},
		},
		{
			Method: "GET", Path: Prefix + "/key", Summary: "The key of this server as a witness of other logs", Media: "text/plain",
			Handle: func(w http.ResponseWriter, _ *http.Request) error {
				return say(w, http.StatusOK, "text/plain; charset=utf-8", k.Cosigner.String()+"\n")
			},
		},
	}
}

func (k *Keeper) postAdd(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return say(w, http.StatusBadRequest, "text/plain; charset=utf-8", "The body is too long, or broke off.\n")
	}
	a, err := k.Add(r.Context(), body)
	if err != nil {
		return err
	}
	media := "text/plain; charset=utf-8"
	if a.Status == http.StatusConflict {
		media = "text/x.tlog.size"
	}
	return say(w, a.Status, media, a.Text)
}

func say(w http.ResponseWriter, status int, media, text string) error {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
	return nil
}
