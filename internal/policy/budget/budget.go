// Package budget reads the budgets of a policy: how much money or how many tokens an agent, a user, a run, a deck or a
// workspace may use in an hour, a day or a month.
//
// It knows how a budget is written, the condition that it stands for, and the words for one that is used up. It must
// not know how conditions are evaluated, or who counts.
package budget

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/policy/document"
	"signalbox/internal/policy/window"
)

// Budget is one item of the section budgets. Package policy makes a rule of it, which is tried before all others.
type Budget struct {
	Name   string  `json:"name"`
	Per    string  `json:"per"`              // whose it is: one of Owners
	Each   string  `json:"each,omitempty"`   // hour, day or month; absent for that of a run, which lasts as long as the run
	USD    float64 `json:"usd,omitempty"`    // 0 for no limit
	Tokens int64   `json:"tokens,omitempty"` // 0 for no limit
	Only   string  `json:"only,omitempty"`   // the condition under which it is looked at, absent for always
}

// Keys are the keys of a budget. docs/policy.md explains them.
var Keys = []string{"name", "per", "each", "usd", "tokens", "only", "then", "gate", "reason", "mode"}

// Owners are the values of per.
var Owners = []string{"agent", "user", "run", "deck", "workspace"}

// wholeRun is the window of the budget of a run. It is the longest that is counted.
const wholeRun = window.Window(window.Longest)

// The most that a budget may allow. Counters are exact below.
const (
	maxUSD    = 1_000_000
	maxTokens = 1_000_000_000_000
)

// Read reads what is apart from name, only, then, gate, reason and mode, which are as in a rule.
func Read(r *document.Reader, n *yaml.Node, f document.Fields) (b Budget) {
	if f["per"] == nil {
		r.Add(document.At(n), "Write per: with one of "+strings.Join(Owners, ", ")+".", "The budget has no %q.", "per")
	} else {
		b.Per = r.OneOf(f["per"], "per", Owners...)
	}
	switch each := f["each"]; {
	case each != nil && b.Per == "run":
		r.Add(document.At(each), "Leave it out: a run has one budget, for as long as it lasts.",
			"%q has no effect with per: run.", "each")
	case each != nil:
		b.Each = r.OneOf(each, "each", window.Names...)
	case b.Per != "run" && b.Per != "":
		r.Add(document.At(n), "Write each: with one of "+strings.Join(window.Names, ", ")+".", "The budget has no %q.", "each")
	}
	if f["usd"] == nil && f["tokens"] == nil {
		r.Add(document.At(n), "Write usd: 20, or tokens: 1000000, or both.", "The budget has neither %q nor %q.", "usd",
			"tokens")
	}
	if usd := f["usd"]; usd != nil {
		b.USD = readUSD(r, usd)
	}
	if tokens := f["tokens"]; tokens != nil {
		b.Tokens = int64(r.Number(tokens, "tokens", maxTokens))
	}
	return b
}

// readUSD reads an amount of money, and 0 for what is none.
func readUSD(r *document.Reader, n *yaml.Node) float64 {
	const form = "Write dollars, such as 20 or 0.5: more than 0, and at most 1000000."
	text, ok := r.Scalar(n, "usd", form, "!!int", "!!float")
	if !ok {
		return 0
	}
	usd, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(usd) || usd < 1e-9 || usd > maxUSD {
		r.Add(document.At(n), form, "%q is %s.", "usd", text)
		return 0
	}
	return usd
}

// Window is the time that it is for.
func (b *Budget) Window() window.Window {
	if w, ok := window.Parse(b.Each); ok {
		return w
	}
	return wholeRun
}

// Counter is the name of a counter of recent for whoever has the budget, such as cost.deck.
func (b *Budget) Counter(what string) string {
	if b.Per == "agent" {
		return what
	}
	return what + "." + b.Per
}

// Condition is the condition that holds when it is used up. only comes first, so that nothing is counted for what the
// budget is not about.
func (b *Budget) Condition() string {
	call := func(what string) string {
		if b.Per == "agent" {
			return fmt.Sprintf("recent.%s(%q)", what, b.Window())
		}
		return fmt.Sprintf("recent.%s(%q, %q)", what, b.Window(), b.Per)
	}
	var limits []string
	if b.USD > 0 {
		usd := strconv.FormatFloat(b.USD, 'f', -1, 64)
		if !strings.Contains(usd, ".") {
			usd += ".0"
		}
		limits = append(limits, call("cost")+" >= "+usd)
	}
	if b.Tokens > 0 {
		limits = append(limits, call("tokens")+" >= "+strconv.FormatInt(b.Tokens, 10))
	}
	text := strings.Join(limits, " || ")
	if b.Only == "" {
		return text
	}
	only := b.Only
	if strings.Contains(only, "//") {
		only += "\n" // a comment ends with its line
	}
	if len(limits) > 1 {
		text = "(" + text + ")"
	}
	return "(" + only + ") && " + text
}

// Reason says what is used up, how much of how much, and when it begins anew. owner is who has the budget, count reads
// a counter.
func (b *Budget) Reason(owner string, count func(what string, w window.Window) float64, now time.Time) string {
	w := b.Window()
	used := count(b.Counter("cost"), w)
	amount := fmt.Sprintf("%s of %s", Dollars(used), Dollars(b.USD))
	if b.USD == 0 || used < b.USD {
		amount = fmt.Sprintf("%.0f of %d tokens", count(b.Counter("tokens"), w), b.Tokens)
	}
	if b.Per == "run" {
		return fmt.Sprintf("The budget %q of %s is used up: %s. It does not begin anew; ask a person for more.", b.Name, owner,
			amount)
	}
	return fmt.Sprintf("The budget %q of %s is used up: %s in this %s. It begins anew at %s.", b.Name, owner, amount, b.Each,
		w.End(now).Format("2006-01-02 15:04 UTC"))
}

// Dollars writes an amount of money, to a hundredth of a cent.
func Dollars(usd float64) string {
	return "$" + strconv.FormatFloat(math.Round(usd*1e4)/1e4, 'f', -1, 64)
}
