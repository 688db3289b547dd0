package web

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/wire"
)

// messageOf is what an error says to people, without its cause.
func messageOf(err error) string { return fault.From(err).Message }

// nothingShown is the digest of a form that carries none. People vote on what they see, so it is
// refused, where a program may leave the digest out.
const nothingShown = "none"

// ballot reads the vote that a form carries.
func ballot(r *Request) (gate.Ballot, error) {
	// "for" is the colleague whose vote this is, if that colleague has delegated; the gate checks it.
	// Browsers send lines of a form with a return that a script does not see, and a signature is over the note.
	b := gate.Ballot{
		Note: strings.ReplaceAll(r.Field("note"), "\r\n", "\n"), For: r.Field("for"),
		Digest: cmp.Or(r.Field("digest"), nothingShown),
	}
	b.Unseen, _ = strconv.ParseInt(r.Field("unseen"), 10, 64) // 0 if the box is not ticked
	switch r.Field("do") {
	// A modification is an approval with other content; the protocol checks that content.
	case "approve", "modify":
		b.Approve = true
	case "reject":
	default:
		return b, fault.New(fault.InvalidRequest, "The form should say approve, modify or reject.").About("do")
	}
	if r.Field("do") == "modify" {
		b.Modified = wire.Raw(r.Field("modified"))
		var value any
		if err := wire.Unmarshal(b.Modified, &value); err != nil {
			return b, fault.New(fault.InvalidPayload, "What to do instead should be JSON: %s", messageOf(err)).About("modified")
		}
	}
	var err error
	if b.Assertion, err = signedForm(r); err != nil {
		return b, err
	}
	return b, b.CheckReason()
}

// vote casts the vote of a form. If the form only asks, the answer is what there is to sign for it.
func (w *Web) vote(r *Request, gateID string, b gate.Ballot) (g gate.Gate, asked *signing, err error) {
	if r.Field("ask") != "" {
		asked = &signing{}
		asked.Sign, err = w.Gates.Ask(r.Context(), r.Who, gateID, b)
		return g, asked, err
	}
	g, err = w.Gates.Vote(r.Context(), r.Who, gateID, b)
	return g, nil, err
}

// decide casts a vote. That somebody else was faster is news, and no error.
func (w *Web) decide(r *Request) (Result, error) {
	id := r.PathValue("id")
	// Back to the gate, with the filter that the list had.
	here := address.Gate.At(id) + r.Field("query")
	// The query came from a hidden field, which anybody can change.
	if !isOurs(here) {
		here = address.Gate.At(id)
	}
	b, err := ballot(r)
	if err != nil {
		return Result{To: here}, err
	}
	g, asked, err := w.vote(r, id, b)
	if fault.Is(err, fault.AlreadyResolved) {
		return Result{To: here, Flash: w.alreadyDecided(r, id)}, nil
	}
	if err != nil {
		return Result{To: here}, err
	}
	if asked != nil {
		return Result{JSON: asked}, nil
	}
	if err := w.Gates.AwaitUse(r.Context(), &g); err != nil {
		return Result{To: here}, err
	}
	return Result{To: here, Flash: strings.TrimSpace(outcome(&g, b.Approve) + " " + g.UnusedNote())}, nil
}

// outcome says what a vote has led to.
func outcome(g *gate.Gate, approve bool) string {
	switch {
	case g.Status == gate.Approved && len(g.Modified) > 0:
		return "Approved with changes: " + cut(80, g.Title)
	case g.Status == gate.Approved:
		return "Approved: " + cut(80, g.Title)
	case g.Status == gate.Rejected:
		return "Rejected: " + cut(80, g.Title)
	case approve:
		return "Your approval is counted. The gate waits for others."
	}
	return "Your rejection is counted. The gate waits for others."
}

// alreadyDecided says who was first.
func (w *Web) alreadyDecided(r *Request, id string) string {
	g, err := w.visible(r, id)
	if err != nil || g.ResolvedAt == nil {
		return "This was decided a moment ago."
	}
	return fmt.Sprintf("%s %s this first, %s. Nothing was changed.", title(g.ResolvedBy), g.Status,
		relative(w.Now().Sub(*g.ResolvedAt)))
}

// bulk is what is about to be done to several gates at once, to be confirmed: those that will be
// decided, and those that cannot be, with the reason.
type bulk struct {
	Approve bool
	Gates   []gateView
	Left    []leftOut
	Query   string
}

// leftOut is a gate that will not be touched, and why: somebody decided it, or this person may
// not.
type leftOut struct {
	Title, Why string
}

const (
	// maxBulk is how many gates can be decided at once: as many as a page shows, since nobody has
	// looked at more.
	maxBulk = inboxRows
	// maxBulkBytes is how many bytes of gates the question shows.
	maxBulkBytes = 4 << 20
)

// alone says why a gate is not decided together with others, nil if it may be.
func alone(g *gate.Gate) error {
	switch {
	case g.Risk == "high":
		return fault.New(fault.Conflict, "A gate of high risk is decided on its own page.")
	case g.Presence != "":
		return fault.New(fault.PresenceRequired, "It takes the signature of a passkey, and is decided on its own page.")
	case len(g.Unshown) > 0:
		return fault.New(fault.Conflict, "It is too long to be shown here whole, and is decided on its own page.")
	}
	return nil
}

// sizeOf is how many bytes of a page a gate takes.
func sizeOf(g *gate.Gate) int {
	size := len(g.Summary) + len(g.ProposedAction)
	for _, f := range g.Facts {
		size += len(f.Value)
	}
	for _, raw := range g.Artifacts {
		size += len(raw)
	}
	return size
}

// askBulk lists what will be done, and what cannot be, and asks for confirmation.
func (w *Web) askBulk(r *Request) (Result, error) {
	ids := r.PostForm["gate"]
	if len(ids) == 0 {
		return Result{}, fault.New(fault.InvalidRequest, "Select the gates first.")
	}
	// A form can be made by hand, so the limit is checked here and again below.
	if len(ids) > maxBulk {
		return Result{},
			fault.New(fault.InvalidRequest, "That is %d gates; at most %d are decided at once.", len(ids), maxBulk)
	}
	page, room := bulk{Approve: r.Field("do") == "approve", Query: r.Field("query")}, maxBulkBytes
	for _, id := range ids {
		g, err := w.visible(r, id)
		if err != nil {
			return Result{}, err
		}
		// Said before, and not after, the person has confirmed.
		err = cmp.Or(g.Admits(r.Who, page.Approve), alone(&g))
		if err == nil && sizeOf(&g) > room {
			err = fault.New(fault.TooLarge, "It did not fit on this page. Decide it on its own.")
		}
		if err != nil {
			page.Left = append(page.Left, leftOut{g.Title, messageOf(err)})
			continue
		}
		room -= sizeOf(&g)
		page.Gates = append(page.Gates, newGateView(g))
	}
	verb := map[bool]string{true: "Approve ", false: "Reject "}[page.Approve]
	return Result{
		Template: "bulk", Title: verb + plural(len(page.Gates), "gate"),
		Data: page,
	}, nil
}

// doBulk casts the same vote on each gate. One that fails does not keep the others from being
// decided; the message lists what was not done.
func (w *Web) doBulk(r *Request) (Result, error) {
	to := address.Inbox.At() + r.Field("query")
	if !isOurs(to + "/") {
		to = address.Inbox.At()
	}
	b, err := ballot(r)
	if err != nil {
		return Result{To: to}, err
	}
	ids := r.PostForm["gate"]
	if len(ids) > maxBulk {
		return Result{To: to},
			fault.New(fault.InvalidRequest, "That is %d gates; at most %d are decided at once.", len(ids), maxBulk)
	}
	// Before anything is decided, since the question leaves these out: somebody made the form by hand.
	for _, id := range ids {
		g, err := w.visible(r, id)
		if err == nil {
			err = alone(&g)
		}
		if err != nil {
			return Result{To: to}, fault.New(fault.From(err).Code, "%s: %s Nothing was changed.", short(id), messageOf(err))
		}
	}
	done, before, problems := 0, 0, []string{}
	for _, id := range ids {
		b.Digest = cmp.Or(r.Field("digest-"+id), nothingShown)
		switch _, err := w.Gates.Vote(r.Context(), r.Who, id, b); {
		// Somebody else decided between the two pages.
		case fault.Is(err, fault.AlreadyResolved):
			before++
		case err != nil:
			problems = append(problems, short(id)+": "+messageOf(err))
		default:
			done++
		}
	}
	// One sentence for everything, since a redirect carries one message.
	text := map[bool]string{true: "Approved ", false: "Rejected "}[b.Approve] + plural(done, "gate") + "."
	if before > 0 {
		text += fmt.Sprintf(" %s decided already.", map[bool]string{true: "1 was", false: num(before) + " were"}[before == 1])
	}
	if len(problems) > 0 {
		return Result{To: to}, fault.New(fault.Conflict, "%s Not done: %s", text, strings.Join(problems, " "))
	}
	return Result{To: to, Flash: text}, nil
}

// delegate lets another operator cast the caller's votes for some days.
func (w *Web) delegate(r *Request) (Result, error) {
	// A delegation always ends: nobody remembers to take one back.
	days := map[string]int{"1": 1, "7": 7, "30": 30}[r.Field("days")]
	if days == 0 {
		return Result{}, fault.New(fault.InvalidPayload, "Choose 1, 7 or 30 days.").About("days")
	}
	until := w.Now().AddDate(0, 0, days)
	if err := w.Gates.Delegate(r.Context(), r.Who, r.Field("delegate"), until); err != nil {
		return Result{}, err
	}
	return Result{Flash: fmt.Sprintf("%s may cast your votes until %s.", r.Field("delegate"),
		until.UTC().Format(time.DateOnly))}, nil
}

// undelegate ends a delegation at once.
func (w *Web) undelegate(r *Request) (Result, error) {
	if err := w.Gates.Undelegate(r.Context(), r.Who, r.Field("delegate")); err != nil {
		return Result{}, err
	}
	return Result{Flash: "Your votes are yours alone again."}, nil
}
