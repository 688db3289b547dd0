package web

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/task"
	"signalbox/internal/wire"
)

// call is a call of the operators' API, made inside of the process by who is signed in.
// Pages read through it where a service has no other way to be asked, so what they show,
// and to whom, is what the API shows.
type call struct {
	method, route string
	at            map[string]string // what stands for the names in the route
	query         map[string]string // empty values are left out
	body          any               // sent as JSON, []byte as it is
	header        map[string]string
}

// ask makes the call, with one of a service's routes, and decodes the answer, or gives it as
// it came to a *[]byte.
func (w *Web) ask(r *Request, routes []wire.Route, c call, answer any) error {
	for i := range routes {
		if routes[i].Method == c.method && routes[i].Path == c.route {
			return c.make(r, &routes[i], answer)
		}
	}
	return fmt.Errorf("there is no route %s %s", c.method, c.route)
}

func (c call) make(r *Request, route *wire.Route, answer any) error {
	if needed := roleFor(route.Auth); !r.May(needed) {
		return fault.New(fault.Forbidden, "This takes the role %s, and %s has the role %s. Ask an admin.", needed, r.Who.Name, r.Who.Role)
	}
	q := url.Values{}
	for name, value := range c.query {
		if value != "" {
			q.Set(name, value)
		}
	}
	body, raw := c.body.([]byte)
	if c.body != nil && !raw {
		var err error
		if body, err = wire.Marshal(c.body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(r.Context(), c.method, c.route+"?"+q.Encode(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range c.header {
		req.Header.Set(name, value)
	}
	for name, value := range c.at {
		req.SetPathValue(name, value)
	}
	got := &answered{header: http.Header{}, status: http.StatusOK}
	if err := route.Handle(got, req); err != nil {
		return err
	}
	if got.status >= 400 {
		return got.fault()
	}
	switch into := answer.(type) {
	case nil:
		return nil
	case *[]byte:
		*into = got.body.Bytes()
		return nil
	}
	return wire.Unmarshal(got.body.Bytes(), answer)
}

// roleFor is the least role that may make a call. Calls of agents are made by nobody here;
// the admin of a task is an operator.
func roleFor(auth wire.Auth) roster.Role {
	switch auth {
	case wire.Public, wire.Viewer, wire.Party:
		return roster.Viewer
	case wire.Operator:
		return roster.Operator
	default:
		return roster.Admin
	}
}

// answered keeps an answer.
type answered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answered) Header() http.Header            { return a.header }
func (a *answered) WriteHeader(status int)         { a.status = status }
func (a *answered) Write(text []byte) (int, error) { return a.body.Write(text) }

// fault is the error that an answer carries; tasks have a form of their own.
func (a *answered) fault() error {
	var refused task.ErrorRecord
	if wire.UnmarshalPart(a.body.Bytes(), &refused) == nil && len(refused.Errors) > 0 {
		var why []string
		for _, p := range refused.Errors {
			why = append(why, strings.TrimSpace(p.Detail+" "+p.Expected))
		}
		return fault.New(fault.Conflict, "The task refuses this: %s", strings.Join(why, " "))
	}
	var e wire.ErrorBody
	if err := wire.UnmarshalPart(a.body.Bytes(), &e); err != nil || e.Message == "" {
		return fault.New(fault.Internal, "The call was answered with %d.", a.status)
	}
	return &fault.Error{Code: e.Error, Message: e.Message, Field: e.Field}
}

// older is the address of the next page, "" when there is none.
func older(r *Request, cursor string) string {
	if cursor == "" {
		return ""
	}
	q := r.URL.Query()
	q.Set("cursor", cursor)
	return r.URL.Path + "?" + q.Encode()
}

// place is the workspace that a page shows, for pages that show one at a time.
type place struct {
	Workspace  string
	Workspaces []string
}

func (w *Web) place(r *Request) (place, error) {
	all, err := w.Roster.Workspaces(r.Context(), r.Who.Workspace)
	if err != nil {
		return place{}, err
	}
	p := place{Workspace: r.Query("workspace"), Workspaces: all}
	if p.Workspace == "" {
		p.Workspace = r.Who.Workspace
	}
	if p.Workspace == "" && len(all) > 0 {
		p.Workspace = all[0]
		for _, name := range all {
			if name == "default" {
				p.Workspace = name
			}
		}
	}
	if !wire.InScope(r.Context(), p.Workspace) {
		return p, fault.New(fault.NotFound, "There is no workspace %.80q.", p.Workspace)
	}
	return p, nil
}
