package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/time/rate"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
)

// The cost of one try of a password, as OWASP recommends it for Argon2id.
const (
	argonTime    = 2
	argonMemory  = 19 << 10 // KiB
	argonThreads = 1

	minPassword = 12 // characters
	maxPassword = 1024
	// triesAtOnce keeps people who guess from taking the server's memory.
	triesAtOnce = 2
)

// verifier is what is kept of a password: Argon2id, and over it an HMAC with a key that
// only the data folder has. Viewers may read the ledger; without the key, what they read
// there is of no use for guessing.
func (w *Web) verifier(password string, salt []byte) string {
	derived := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, 32)
	mac := hmac.New(sha256.New, append([]byte("signalbox password\x00"), w.Key...))
	mac.Write(derived)
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("argon2id-hmac$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads,
		encode(salt), encode(mac.Sum(nil)))
}

// matches reports whether the password is the one of which the verifier was made.
func (w *Web) matches(password, kept string) bool {
	parts := strings.Split(kept, "$")
	if len(parts) != 5 {
		return false
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[3])
	return err == nil && subtle.ConstantTimeCompare([]byte(w.verifier(password, salt)), []byte(kept)) == 1
}

// SetPassword gives an operator a password, or takes it away with "". It ends their
// sessions.
func (w *Web) SetPassword(ctx context.Context, by roster.Identity, name, password string) error {
	kept := ""
	if password != "" {
		if n := utf8.RuneCountInString(password); n < minPassword || n > maxPassword {
			return fault.New(fault.InvalidPayload,
				"The password should have %d to %d characters, such as a sentence of five words. It has %d.", minPassword,
				maxPassword, n).About("password")
		}
		salt := make([]byte, 16)
		_, _ = rand.Read(salt) // never fails
		w.tries.take()
		kept = w.verifier(password, salt)
		w.tries.release()
	}
	return w.ledger.Write(ctx, func(tx *ledger.Tx) error {
		p, err := roster.OperatorFor(tx, by, name)
		if err != nil {
			return err
		}
		if p.ID != by.ID && !by.Role.Allows(roster.Admin) {
			return fault.New(fault.Forbidden, "Only an admin may set the password of somebody else.")
		}
		tx.Append(ledger.Event{
			Workspace: p.Workspace, Kind: kindPasswordSet, Actor: by.Actor(), Subject: p.ID,
			Body: passwordSet{kept},
		})
		return nil
	})
}

// checkPassword finds the operator whom name and password stand for. Every no is the same
// no, and takes as long.
func (w *Web) checkPassword(ctx context.Context, name, password string) (roster.Identity, error) {
	wrong := fault.New(fault.Unauthenticated, "The name or the password is wrong.")
	if len(password) > 4*maxPassword {
		return roster.Identity{}, wrong
	}
	if !w.tries.allow(name) {
		return roster.Identity{},
			fault.New(fault.RateLimited,
				"There were too many tries for this name. Wait a minute, or open the address that `signalbox login` prints.")
	}
	who, kept, err := w.passwordOf(ctx, name)
	if err != nil {
		return roster.Identity{}, err
	}
	w.tries.take()
	right := w.matches(password, kept)
	w.tries.release()
	switch {
	case right && who.ID != "":
		return who, nil
	case who.ID != "":
		err = w.ledger.Write(ctx, func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{
				Workspace: who.Workspace, Kind: kindRefused, Actor: "system", Subject: who.ID,
				Body: refused{"password"},
			})
			return nil
		})
		return roster.Identity{}, errors.Join(wrong, err)
	}
	return roster.Identity{}, wrong
}

// enter opens a session for whom name and password stand, and returns its token.
func (w *Web) enter(ctx context.Context, name, password string) (token string, err error) {
	who, err := w.checkPassword(ctx, name, password)
	if err != nil {
		return "", err
	}
	return w.signIn(ctx, who, "password")
}

// noPassword is what stands for a password that nobody has. To compare with it takes as
// long as with another.
const noPassword = "argon2id-hmac$$$AAAAAAAAAAAAAAAAAAAAAA$"

// passwordOf reads what is kept of an operator's password. Who has none, or is not there,
// has one that nothing matches.
func (w *Web) passwordOf(ctx context.Context, name string) (who roster.Identity, kept string, err error) {
	who, err = w.Roster.OperatorByName(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return roster.Identity{}, noPassword, nil
	}
	if err != nil {
		return who, "", err
	}
	err = w.db.QueryRow(ctx, "SELECT verifier FROM web_password WHERE operator = $1", []any{who.ID}, &kept)
	if errors.Is(err, sql.ErrNoRows) {
		return roster.Identity{}, noPassword, nil
	}
	return who, kept, err
}

// tries limits how often passwords are tried.
type tries struct {
	mu      sync.Mutex
	byName  map[string]*rate.Limiter
	running chan struct{}
}

func newTries() *tries {
	return &tries{byName: map[string]*rate.Limiter{}, running: make(chan struct{}, triesAtOnce)}
}

func (t *tries) take()    { t.running <- struct{}{} }
func (t *tries) release() { <-t.running }

// maxNames is how many names are remembered. Who tries more of them shares one limit.
const maxNames = 10_000

func (t *tries) allow(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName[name] == nil {
		if len(t.byName) >= maxNames {
			name = ""
		}
		if t.byName[name] == nil {
			t.byName[name] = rate.NewLimiter(rate.Every(12*time.Second), 5)
		}
	}
	return t.byName[name].Allow()
}
