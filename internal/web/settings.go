package web

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/notify"
	"signalbox/internal/price"
	"signalbox/internal/roster"
)

// settingActions are for admins.
func settingActions() []Action {
	return []Action{
		{Path: address.Settings.Of("channels/test"), Role: roster.Admin, Do: (*Web).testChannel},
		{Path: address.Settings.Of("operators/add"), Role: roster.Admin, Do: (*Web).addOperator},
		{Path: address.Settings.Of("operators/{name}/token"), Role: roster.Admin, Do: (*Web).newToken},
		{Path: address.Settings.Of("operators/{name}/remove"), Role: roster.Admin, Do: (*Web).removeOperator},
		{Path: address.Settings.Of("prices"), Role: roster.Admin, Do: (*Web).setPrices},
	}
}

// settings is how the server is set up: channels, people, prices and configuration. Secrets are
// not in it.
type settings struct {
	Channels   []notify.ChannelInfo
	Confined   bool // who looks sees one workspace, and not the server
	Operators  []roster.Person
	Workspaces []string
	Prices     price.Listed
	PriceText  string
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
	v.PriceText = priceText(v.Prices.Models)
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

// priceText is the price table as lines that can be edited: model, input, output, and from when.
func priceText(all []price.Price) string {
	var b strings.Builder
	for _, p := range all {
		_, _ = fmt.Fprintln(&b, strings.TrimSpace(fmt.Sprintf("%s %v %v %s", p.Model, p.Input, p.Output, p.From)))
	}
	return b.String()
}

// readPrices reads what priceText writes. The first line that is wrong is quoted in the error.
func readPrices(text string) (all []price.Price, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var p price.Price
		var err1, err2 error
		if len(fields) >= 3 {
			p.Model = fields[0]
			p.Input, err1 = strconv.ParseFloat(fields[1], 64)
			p.Output, err2 = strconv.ParseFloat(fields[2], 64)
		}
		if len(fields) == 4 {
			p.From = fields[3]
		}
		if len(fields) < 3 || len(fields) > 4 || err1 != nil || err2 != nil {
			return nil, fault.New(fault.InvalidPayload,
				"A line should be a model, what a million tokens in and out cost, and maybe a day, such as \"claude-sonnet-4-6 3 "+
					"15 2026-03-01\", and is %.80q.", strings.TrimSpace(line)).About("prices")
		}
		all = append(all, p)
	}
	return all, nil
}

// setPrices replaces the price table.
func (w *Web) setPrices(r *Request) (Result, error) {
	at := Result{To: address.Settings.At() + "#prices"}
	all, err := readPrices(r.PostFormValue("prices"))
	if err != nil {
		return at, err
	}
	// Prices are versions: costs that were computed before stay as they are.
	table, err := w.Prices.Change(r.Context(), r.Who, price.Change{Models: all})
	if err != nil {
		return at, err
	}
	at.Flash = fmt.Sprintf("Version %d of the prices is in force.", table.Version)
	return at, nil
}
