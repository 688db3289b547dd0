package gate

// Listing and Inbox are the queries of listings, for looking at how they are answered.
var (
	Listing = listing
	Inbox   = inbox
)

// ByID is the query of one gate.
const ByID = selectGate + byID

// Waiters is for how many gates somebody waits.
func (g *Gates) Waiters() int { return g.waiters.Waiting() }
