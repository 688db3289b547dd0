package web

import (
	"slices"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/notify"
	"signalbox/internal/price"
	"signalbox/internal/roster"
)

// settings is how the server is set up: channels, people, prices and configuration. Secrets are
// not in it.
type settings struct {
	Channels   []notify.ChannelInfo
	Confined   bool // who looks sees one workspace, and not the server
	Operators  []roster.Person
	Workspaces []string
	Prices     price.Listed
	Retention  string
	Keep       string
	Groups     []settingGroup
}

// settingGroup is the configuration keys that begin with the same word.
type settingGroup struct {
	Name string
	Keys []Setting
}

// Roles are those that operators have.
func (settings) Roles() []string {
	return []string{string(roster.Viewer), string(roster.Operator), string(roster.Admin)}
}

// loadSettings reads what the caller may see: an operator of one workspace sees its people and the
// prices, and nothing of the server.
func (w *Web) loadSettings(r *Request) (any, error) {
	v := &settings{Confined: r.Who.Workspace != ""}
	var err error
	if v.Operators, err = w.Roster.Operators(r.Context(), r.Who.Workspace); err != nil {
		return nil, err
	}
	if v.Workspaces, err = w.Roster.Workspaces(r.Context(), r.Who.Workspace); err != nil {
		return nil, err
	}
	v.Prices = w.Prices.List()
	// Channels and configuration are the whole server's.
	if v.Confined {
		return v, nil
	}
	channels, err := w.Notifier.List(r.Context())
	if err != nil {
		return nil, err
	}
	v.Channels = channels.Channels
	if w.Settings != nil {
		v.group(w.Settings())
	}
	return v, nil
}

// group puts the configuration in order by the first word of the keys, and picks out what the page
// shows elsewhere.
func (v *settings) group(all []Setting) {
	for _, s := range all {
		switch s.Key {
		case "ledger.retention":
			if s.Value != "none" {
				v.Retention = s.Value
			}
		case "mail.keep":
			v.Keep = s.Value
		}
		name, _, found := strings.Cut(s.Key, ".")
		if !found {
			name = "server"
		}
		at := slices.IndexFunc(v.Groups, func(g settingGroup) bool { return g.Name == name })
		// Groups are in the order of the configuration.
		if at < 0 {
			at, v.Groups = len(v.Groups), append(v.Groups, settingGroup{Name: name})
		}
		v.Groups[at].Keys = append(v.Groups[at].Keys, s)
	}
}

// testChannel sends a test message to a channel.
func (w *Web) testChannel(r *Request) (Result, error) {
	results, err := w.Notifier.Test(r.Context(), r.Who, r.Field("channel"))
	if err != nil {
		return Result{To: address.Settings.At()}, err
	}
	// Several channels may have the same name, such as e-mail addresses; one that fails is the news.
	for _, t := range results {
		if !t.Delivered {
			return Result{To: address.Settings.At()},
				fault.New(fault.Conflict, "%s did not take the test message: %s", t.Channel, t.Text)
		}
	}
	return Result{To: address.Settings.At(), Flash: r.Field("channel") + " took the test message."}, nil
}

// newOperator is a token that is shown this once.
type newOperator struct{ Name, Token, Role string }

// addOperator adds an operator and shows the token, this once.
func (w *Web) addOperator(r *Request) (Result, error) {
	_, token, err := w.Roster.AddOperator(r.Context(), r.Who, r.Field("name"), r.Field("role"), r.Field("workspace"))
	if err != nil {
		return Result{To: address.Settings.At()}, err
	}
	return showToken(newOperator{r.Field("name"), token.Secret, r.Field("role")}), nil
}

// newToken makes a further token for an operator.
func (w *Web) newToken(r *Request) (Result, error) {
	token, err := w.Roster.NewToken(r.Context(), r.Who, r.PathValue("name"))
	if err != nil {
		return Result{To: address.Settings.At()}, err
	}
	return showToken(newOperator{r.PathValue("name"), token.Secret, ""}), nil
}

// showToken is the page that shows a token, this once.
func showToken(t newOperator) Result {
	return Result{Template: "token", Title: "A token for " + t.Name, Data: t}
}

// removeOperator removes an operator, whose tokens and sessions end at once.
func (w *Web) removeOperator(r *Request) (Result, error) {
	err := w.Roster.RemoveOperator(r.Context(), r.Who, r.PathValue("name"))
	return Result{To: address.Settings.At(), Flash: r.PathValue("name") + " is no operator any more."}, err
}
