package roster

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/refusal"
	"signalbox/internal/roster/bucket"
	"signalbox/internal/wire"
)

// How limits combine. A protocol has a limit of its own for each kind of call. The server's
// setting (limits.per_agent) replaces it for every agent, and the agent's own rate_limit
// replaces both. A key may have a narrower limit of its own beside that: both have to allow a
// call, and the caller is told about the one with less left. Everything is counted in the
// memory of each node, so a restart fills every bucket.

// MaxRateLimit is the largest limit, a minute; for more than that, set 0, no limit.
const MaxRateLimit = 1_000_000

// parseRateLimit reads the limit of an agent: a number, or "default" for nil. It is
// a word because null is as good as absent everywhere else.
func parseRateLimit(raw wire.Raw) (*int64, error) {
	if string(raw) == `"default"` {
		return nil, nil
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || n > MaxRateLimit {
		return nil, fault.New(fault.InvalidPayload,
			"The rate_limit should be a whole number of requests a minute, from 1 to %d, or 0 for no limit, or \"default\" "+
				"for the server's own. It is %.40s.", MaxRateLimit, raw).About("rate_limit")
	}
	return &n, nil
}

// Allowance is what is left of a limit after a call.
type Allowance struct {
	Limit     int // a minute; 0 is none
	Remaining int
	Reset     time.Time // when all of it is there again, if nothing more is used
}

// SetHeaders tells the caller of an HTTP call where it stands.
func (a Allowance) SetHeaders(h http.Header) {
	if a.Limit == 0 {
		return
	}
	h.Set("X-RateLimit-Limit", strconv.Itoa(a.Limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(a.Remaining))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(a.Reset.Unix(), 10))
}

// Admit counts a call of an agent, over HTTP or as an MCP tool, and refuses it if the limit is
// used up. own is how many of these the protocol allows a minute, 0 for any number. Operators
// have no limit.
func (r *Roster) Admit(who Identity, own int) (Allowance, error) {
	if who.Kind != HolderAgent {
		return Allowance{}, nil
	}
	return r.Take(who, "requests", own)
}

// Take counts one of what, such as "requests" or "messages", and refuses it when the
// limit is used up. own is the limit that the protocol sets, 0 for none; the server's
// setting comes before it, and the agent's own before both. The limit is the agent's:
// a further key gives no further room, and one with a limit of its own has less.
func (r *Roster) Take(who Identity, what string, own int) (Allowance, error) {
	limit := own
	if set := r.perAgent(); set != nil {
		limit = int(*set)
	}
	if who.RateLimit != nil {
		limit = int(*who.RateLimit)
	}
	var ofKey Allowance
	if who.KeyLimit != 0 { // few keys have one
		var err error
		if ofKey, err = r.take(&r.buckets, who.KeyID, "This key of "+who.Name, what, int(who.KeyLimit)); err != nil {
			return ofKey, who.refused(refusal.RateLimited, err)
		}
	}
	ofAgent, err := r.take(&r.buckets, who.ID, who.Name, what, limit)
	if err != nil {
		return ofAgent, who.refused(refusal.RateLimited, err)
	}
	if ofKey.Limit > 0 && (ofAgent.Limit == 0 || ofKey.Remaining < ofAgent.Remaining) {
		return ofKey, nil
	}
	return ofAgent, nil
}

// TakeHourly is Take for a limit that a protocol sets for an hour. A setting of the server
// or the agent, which is for a minute, takes its place.
func (r *Roster) TakeHourly(who Identity, what string, own int) (Allowance, error) {
	if r.perAgent() != nil || who.RateLimit != nil {
		return Allowance{}, nil
	}
	left, err := r.take(&r.hourly, who.ID, who.Name, what, own)
	if err != nil {
		err = who.refused(refusal.RateLimited, err)
	}
	return left, err
}

// take takes a token from a bucket, and says what is left of it. A limit of 0 is none.
func (r *Roster) take(from *bucket.Buckets, holder, name, what string, limit int) (Allowance, error) {
	if limit == 0 {
		return Allowance{}, nil
	}
	now := r.now()
	tokens := from.Find(bucket.Name{Holder: holder, What: what, Limit: limit}, now)
	taken := tokens.AllowN(now, 1)
	left := max(0, tokens.TokensAt(now))
	perSecond := float64(tokens.Limit())
	a := Allowance{
		Limit: limit, Remaining: int(left),
		Reset: now.Add(time.Duration((float64(limit) - left) / perSecond * float64(time.Second))),
	}
	if taken {
		return a, nil
	}
	wait := max(1, int(math.Ceil((1-left)/perSecond)))
	return a, fault.New(fault.RateLimited,
		"%s has used up its %d %s %s. Try again in %d seconds, or ask an operator for a higher rate_limit.", name, limit,
		what, from.Unit(), wait).With(wire.RetryAfter, wait)
}
