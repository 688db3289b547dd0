package wire

import (
	"mime"
	"net/http"
	"slices"

	"signalbox/internal/fault"
)

// Route is one call of the HTTP surface. The server mounts it and describes it in
// /openapi.json, so that what is documented is what is there.
type Route struct {
	Method  string
	Path    string // as net/http's ServeMux takes it
	Summary string
	Auth    Auth
	Rate    int     // calls a minute that the protocol allows an agent, 0 for no limit; only with Auth Agent
	Query   []Param // query parameters
	// Request is a value of the body's type, nil for no body or one that is not JSON. It only describes:
	// a handler may read the body in its own way. [OneOf] says that there are several forms.
	Request any
	Answer  any    // a value of the answer's type, nil for something that is not JSON
	Media   string // the answer's media type when Answer is nil
	Status  int    // the status of success, 200 when zero
	Also    int    // another status with the same answer, such as 202 while a person decides
	Handle  Handler

	// Reads says that the call changes nothing although its method could: agents' processes may make it.
	Reads bool
	// Lenient passes over query parameters that are not known, for protocols whose
	// clients differ.
	Lenient bool
	// Fail tells of an error in the form of the protocol, Fail when nil.
	Fail func(w http.ResponseWriter, err error)

	RequestMedia string // the body's media type when it is not JSON

	// Proof names the headers with the credential that the handler of a Public route checks by itself:
	// a key, a signature. The handler refuses a call whose credential is wrong; the server checks where
	// a call comes from that has none. [Demanded] stands for a handler that refuses a call without one.
	Proof []string
}

// Demanded is the Proof of a handler that refuses every call without a credential of its protocol.
const Demanded = "*"

// OneOf is the Request of a call that takes several forms of body.
type OneOf []any

// Auth says who may call.
type Auth string

// Who may call. Each operator role may do what the one before it may.
const (
	Public   Auth = ""
	Agent    Auth = "agent" // with any of its keys; no operator and no owner
	Party    Auth = "party" // an agent, or an operator of any role
	Viewer   Auth = "viewer"
	Operator Auth = "operator"
	Admin    Auth = "admin"
)

// Param is a query parameter.
type Param struct {
	Name, Meaning string
	Number        bool
}

// PageParams are the parameters that Limit and ReadCursor read.
var PageParams = []Param{
	{Name: "limit", Meaning: "how many at the most, 1 to 1000; 100 when absent", Number: true},
	{Name: "cursor", Meaning: "the value of next from the page before"},
}

// Proved reports whether a call has a credential that its handler checks.
func (t *Route) Proved(r *http.Request) bool {
	return slices.ContainsFunc(t.Proof, func(name string) bool { return name == Demanded || r.Header.Get(name) != "" })
}

// CheckMedia refuses a body that is not of the type that the route takes. A program may leave the type out
// (MSG-5); a browser may not, because a page can make it do that.
func (t *Route) CheckMedia(r *http.Request) error {
	if t.Request == nil && t.RequestMedia == "" {
		return nil
	}
	declared := r.Header.Get("Content-Type")
	if declared == "" && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return nil
	}
	if t.RequestMedia == "" {
		return IsJSON(r)
	}
	if media, _, err := mime.ParseMediaType(declared); err != nil || media != t.RequestMedia {
		return fault.New(fault.UnsupportedMedia, "Send the header Content-Type: %s.", t.RequestMedia)
	}
	return nil
}
