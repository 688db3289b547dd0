package homes

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Path is the call by which hosts agree about addresses.
const Path = "/v1/mesh/addresses"

const (
	// callTime bounds one call to another host; whoever registers waits for it.
	callTime = 3 * time.Second
	// tellTime bounds how long a registration waits until the other hosts have heard of it.
	tellTime = time.Second
	// silence is how long nobody waits for a host that did not answer. It reads what it missed when it is back.
	silence = 15 * time.Second
	// page is how many decisions are read at once, and batch how many addresses are claimed at once.
	page, batch = 500, 200
)

type (
	// Asking is what a host asks another one about addresses. All of its members may be absent.
	Asking struct {
		To        string   `json:"to" doc:"the id of the host that is asked" example:"host-a"`
		Registrar string   `json:"registrar" doc:"the host that decides, as the caller is configured" example:"host-a"`
		Claims    []Claim  `json:"claims,omitempty"`
		Keep      bool     `json:"keep,omitzero" doc:"the registrar is away, and the caller is about to register the claims"`
		Release   []string `json:"release,omitempty" doc:"addresses that were reserved and not used"`
		After     int64    `json:"after,omitzero" doc:"the place after which to tell what was decided"`
		News      bool     `json:"news,omitzero" doc:"the registrar has decided something: ask it"`
	}
	// Told is the answer. Whoever is not the registrar answers claims with what it knows, and decides nothing.
	Told struct {
		Answers []Claim `json:"answers,omitempty"`
		Decided []Claim `json:"decided,omitempty"` // after the place that was asked for
		Last    int64   `json:"last,omitzero"`     // the place of the newest decision
	}
)

// ask calls another host, and notes how that went.
func (h *Homes) ask(ctx context.Context, host string, most time.Duration, what Asking) (told Told, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	what.To, what.Registrar = host, h.registrar
	body, err := wire.Marshal(what)
	if err != nil {
		return told, err
	}
	answer, err := h.options.Federation.CallHost(ctx, host, Path, body)
	if err == nil {
		err = wire.UnmarshalPart(answer, &told)
	}
	h.note(host, err)
	return told, err
}

// note keeps how a call to a host went, for operators, and for whether to wait for the host again.
func (h *Homes) note(host string, err error) {
	contact := Contact{At: time.Now()}
	if err != nil {
		contact.Error = err.Error()
		if e, is := errors.AsType[*fault.Error](err); is {
			contact.Error = e.Message
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, known := h.links[host]; err != nil && (!known || before.Error == "") {
		h.core.Log.Warn("a host of the mesh does not answer", "host", host, "error", contact.Error)
	}
	h.links[host] = contact
}

// claim claims addresses at the registrar, which may be this host, and reads what it has decided since.
func (h *Homes) claim(ctx context.Context, claims []Claim) ([]Claim, error) {
	return h.exchange(ctx, claims, nil)
}

// pull reads what the registrar has decided since the last time.
func (h *Homes) pull(ctx context.Context) error {
	_, err := h.exchange(ctx, nil, nil)
	return err
}

// exchange claims and releases addresses, and reads what was decided. Another exchange may run at the same time: each
// decision is appended once.
func (h *Homes) exchange(ctx context.Context, claims []Claim, release []string) (answers []Claim, err error) {
	if h.decides() {
		if len(claims)+len(release) == 0 {
			return nil, nil
		}
		answers, changed, err := h.decide(ctx, h.options.Mesh.Host, claims, release)
		if changed {
			h.tell(ctx, "")
		}
		return answers, err
	}
	after, err := h.newest(ctx, h.registrar)
	if err != nil {
		return nil, err
	}
	what := Asking{Claims: claims, Release: release, After: after}
	for {
		told, err := h.ask(ctx, h.registrar, callTime, what)
		if err != nil {
			return answers, err
		}
		answers = append(answers, told.Answers...)
		switch n := len(told.Decided); {
		case n > 0:
			if err := h.learn(ctx, told.Decided, what.After < 0); err != nil {
				return answers, err
			}
			if n < page {
				return answers, nil
			}
			what = Asking{After: told.Decided[n-1].Place}
		case told.Last < what.After: // its ledger is another one: read it from the beginning, and claim again
			h.mark(true)
			h.Changed()
			what = Asking{After: -1}
		default:
			return answers, nil
		}
	}
}

// askOthers asks the hosts beside the registrar who has an address, and has them keep it for this host if it is about to
// be registered here. Who does not answer has no say.
func (h *Homes) askOthers(ctx context.Context, a amp.Address, keep bool) (known []Claim) {
	var mu sync.Mutex
	var asked errgroup.Group
	for _, name := range h.others(h.registrar) {
		asked.Go(func() error {
			told, err := h.ask(ctx, name, callTime, Asking{Claims: []Claim{{Address: a.String()}}, Keep: keep})
			mu.Lock()
			defer mu.Unlock()
			known = append(known, told.Answers...)
			return err
		})
	}
	_ = asked.Wait() // noted by ask
	return known
}

// others are the hosts that share a secret with this one, but for two.
func (h *Homes) others(but string) (names []string) {
	for name, host := range h.options.Mesh.Hosts {
		if name != but && host.Secret.Reveal() != "" {
			names = append(names, name)
		}
	}
	return names
}

// tell has the other hosts read what was decided, so that they know it should this host be away next. It waits for
// those that answered last.
func (h *Homes) tell(ctx context.Context, but string) {
	var told errgroup.Group
	for _, name := range h.others(but) {
		call := func(ctx context.Context) error {
			_, err := h.ask(ctx, name, tellTime, Asking{News: true})
			return err
		}
		if last := h.Contact(name); last.Error != "" && time.Since(last.At) < silence {
			continue
		}
		told.Go(func() error { return call(ctx) })
	}
	_ = told.Wait() // noted by ask
}

// Serve answers the call of a host, which has to prove who it is (MSG-85).
func (h *Homes) Serve(ctx context.Context, call federation.HostCall, body []byte) (told Told, err error) {
	proved, err := h.options.Federation.VerifyHost(call, body)
	if err != nil {
		return told, err
	}
	if !proved {
		return told, fault.New(fault.Unauthenticated,
			"A host claims addresses with a proof only: share a secret in mail.mesh.secrets on both hosts.")
	}
	var what Asking
	if err := wire.UnmarshalPart(body, &what); err != nil {
		return told, err
	}
	return h.answer(ctx, call.Host, what)
}

// answer answers a host about addresses.
func (h *Homes) answer(ctx context.Context, from string, what Asking) (told Told, err error) {
	switch {
	case what.To != h.options.Mesh.Host:
		return told, fault.New(fault.Forbidden, "This is the host %s of the mesh, and the call is for %.80q.",
			h.options.Mesh.Host, what.To).About("to")
	case what.Registrar != h.registrar:
		return told, fault.New(fault.Conflict, "The hosts of the mesh disagree on who decides about addresses: %.80q by the "+
			"caller's mail.mesh.hosts and mail.mesh.secrets, and %q by ours. List the same hosts everywhere.",
			what.Registrar, h.registrar).About("registrar")
	case what.News:
		// Asked by the registrar or by anybody: it is the registrar's word that is read.
		return told, h.pull(ctx)
	case !h.decides():
		told.Answers, err = h.known(ctx, from, what)
		return told, err
	case len(what.Claims) > page || len(what.Release) > page:
		return told, fault.New(fault.InvalidField, "A call claims or releases at most %d addresses.", page).About("claims")
	}
	h.note(from, nil)
	var changed bool
	if len(what.Claims)+len(what.Release) > 0 {
		if told.Answers, changed, err = h.decide(ctx, from, what.Claims, what.Release); err != nil {
			return told, err
		}
	}
	if changed {
		h.tell(ctx, from)
	}
	if told.Decided, err = h.decided(ctx, what.After); err != nil {
		return told, err
	}
	told.Last, err = h.newest(ctx, h.registrar)
	return told, err
}

// decided are the registrar's decisions after a place, in their order.
func (h *Homes) decided(ctx context.Context, after int64) ([]Claim, error) {
	return store.All(h.core.DB.Reading(ctx), func(scan store.Scan) (Claim, error) {
		r, err := scanHome(scan)
		return Claim{Address: r.Address, Host: r.Host, Key: r.Key, Place: r.Place}, err
	}, "SELECT "+columns+" FROM mail_home WHERE registrar = $1 AND place > $2 ORDER BY place LIMIT $3", h.registrar, after,
		page)
}

// known answers a host who has some addresses, as far as this host knows: by the registrar's decision, or because the agent
// is here, or about to be.
func (h *Homes) known(ctx context.Context, from string, what Asking) (out []Claim, err error) {
	for _, c := range what.Claims[:min(len(what.Claims), page)] {
		a, err := h.options.Domains.Parse(c.Address)
		if err != nil {
			return nil, err
		}
		// Before the tables are read: a bid ends when its agent is there.
		kept := what.Keep && !h.yields(c.Address, from)
		there, err := h.Of(ctx, a)
		if err != nil {
			return nil, err
		}
		if there.Host == "" {
			_, err := h.core.Roster.Find(ctx, a.String())
			if err == nil {
				there.Host = h.options.Mesh.Host
			} else if !fault.Is(err, fault.NotFound) {
				return nil, err
			}
		}
		if there.Host == "" && kept {
			there.Host = h.options.Mesh.Host
		}
		out = append(out, Claim{Address: c.Address, Host: there.Host})
	}
	return out, nil
}
