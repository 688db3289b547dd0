package web

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/time/rate"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// The cost of one try of a password, as OWASP recommends for Argon2id, and the limits of
// passwords.
const (
	argonTime    = 2
	argonMemory  = 19 << 10 // KiB
	argonThreads = 1

	minPassword = 12 // characters
	maxPassword = 1024
	// triesAtOnce keeps people who guess from taking the server's memory.
	triesAtOnce = 2
)

// verifier is what is stored of a password: Argon2id, and over it an HMAC with a key that only the
// data folder has. Viewers may read the ledger; without the key, what they read there is of no use
// for guessing. The parameters are part of the text, so that they can be raised later.
func (w *Web) verifier(password string, salt []byte) string {
	// The domain word in the HMAC's key keeps it apart from other uses of the server's key.
	derived := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, 32)
	mac := hmac.New(sha256.New, append([]byte("signalbox password\x00"), w.Key...))
	mac.Write(derived)
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("argon2id-hmac$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads,
		encode(salt), encode(mac.Sum(nil)))
}

// matches reports whether the password is the one from which the verifier was made.
func (w *Web) matches(password, kept string) bool {
	parts := strings.Split(kept, "$")
	if len(parts) != 5 {
		return false
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[3])
	return err == nil && subtle.ConstantTimeCompare([]byte(w.verifier(password, salt)), []byte(kept)) == 1
}

// SetPassword gives an operator a password, or removes it with "". It ends all of the operator's
// sessions, because the old password may be known to somebody else.
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
		// Computing a verifier takes as much memory as trying one.
		w.tries.acquire()
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

// checkPassword finds the operator by name and password. Every denial has the same text and takes
// the same time, so that nobody learns which names exist. Failed tries on real names are recorded.
func (w *Web) checkPassword(ctx context.Context, name, password string) (roster.Identity, error) {
	wrong := fault.New(fault.Unauthenticated, "The name or the password is wrong.")
	// No password can be that long, and hashing megabytes would be a way to load the server.
	if len(password) > 4*maxPassword {
		return roster.Identity{}, wrong
	}
	// Before the operator is looked up, so that unknown names are limited like known ones.
	if !w.tries.allow(name) {
		return roster.Identity{},
			fault.New(fault.RateLimited,
				"There were too many tries for this name. Wait a minute, or open the address that `signalbox login` prints.")
	}
	who, kept, err := w.passwordOf(ctx, name)
	if err != nil {
		return roster.Identity{}, err
	}
	w.tries.acquire()
	right := w.matches(password, kept)
	w.tries.release()
	switch {
	case right && who.ID != "":
		return who, nil
	// Tries on real names are recorded. Made-up names could fill the ledger, and are not.
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

// signInByPassword opens a session for the operator with this name and password.
func (w *Web) signInByPassword(ctx context.Context, name, password string) (token string, err error) {
	who, err := w.checkPassword(ctx, name, password)
	if err != nil {
		return "", err
	}
	return w.signIn(ctx, who, "password")
}

// noPassword stands for a password that nobody has. Comparing with it takes as long as with any
// other.
const noPassword = "argon2id-hmac$$$AAAAAAAAAAAAAAAAAAAAAA$"

// passwordOf reads the verifier of an operator's password. An operator who has none, and one who
// does not exist, get noPassword, which nothing matches.
func (w *Web) passwordOf(ctx context.Context, name string) (who roster.Identity, kept string, err error) {
	who, err = w.Roster.OperatorByName(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return roster.Identity{}, noPassword, nil
	}
	if err != nil {
		return who, "", err
	}
	kept, err = provenPassword(w.ledger.Prover(ctx), who.ID)
	if err == nil && kept == "" {
		return roster.Identity{}, noPassword, nil
	}
	return who, kept, err
}

// provenPassword is the verifier that an operator's last password.set has, "" for none. The table has to say the same.
func provenPassword(p ledger.Prover, operator string) (kept string, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		rows, err := store.All(p.Query, store.Text, "SELECT verifier FROM web_password WHERE operator = $1", operator)
		if err != nil {
			return false, err
		}
		last, err := p.Entries(ledger.Query{Subject: operator, Kinds: []string{kindPasswordSet}, Newest: true, Limit: 1})
		var b passwordSet
		if err == nil && len(last) > 0 {
			err = last[0].Decode(&b)
		}
		kept = b.Verifier
		return slices.Equal(rows, slices.DeleteFunc([]string{kept}, func(v string) bool { return v == "" })), err
	})
	if err == nil && !agree {
		err = p.Contradicts("web_password", operator, "the password of %s is not the one that was set", operator)
	}
	return kept, err
}

// tries limits how often passwords are tried: by name over time, and in all at the same moment,
// since each try takes 19 MiB. It is per node and in memory.
type tries struct {
	mu      sync.Mutex
	byName  map[string]*rate.Limiter
	running chan struct{}
}

func newTries() *tries {
	return &tries{byName: map[string]*rate.Limiter{}, running: make(chan struct{}, triesAtOnce)}
}

// acquire waits until one more password may be computed; release ends it.
func (t *tries) acquire() { t.running <- struct{}{} }
func (t *tries) release() { <-t.running }

// maxNames is how many names have a limit of their own. Beyond that all new names share one, so
// that made-up names cannot fill the memory.
const maxNames = 10_000

// allow reports whether the name may be tried now: five times at once, then every 12 seconds.
func (t *tries) allow(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	// The map is never cleaned: it is bounded, and forgetting a name would reset its limit.
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
