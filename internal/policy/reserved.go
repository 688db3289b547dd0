package policy

import "signalbox/internal/policy/recent"

// AllRecent is what counts for the input: Recent, or what is on record.
func (in *Input) AllRecent() Recent {
	switch {
	case in.Recent != nil:
		return in.Recent
	case len(in.Reserved) > 0:
		return recent.Stored{Counts: in.Counts, Held: in.Reserved}
	}
	return in.Counts
}

// recent is what rules see of the counters.
func (in *Input) recent() Recent {
	all := in.AllRecent()
	if in.settled {
		if r, ok := all.(recent.Reserving); ok {
			return recent.Settled{Reserving: r}
		}
	}
	return all
}

// reserves reports whether something of what was looked at is reserved.
func (in *Input) reserves() bool {
	if r, ok := in.AllRecent().(recent.Reserving); ok && r.AnyReserved() {
		return true
	}
	for i := range in.delegation().Hops {
		if (in.delegation().Hops[i].Reserved != Budget{}) {
			return true
		}
	}
	return false
}
