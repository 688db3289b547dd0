package engine

import (
	"strconv"
	"strings"
)

// Cause is why a run was ended before its agent was done. It is "" for one that ended by itself, well or not, and is
// stored: a cause is never renamed.
type Cause string

// The causes. Each belongs to one outcome.
const (
	ByPerson Cause = "person" // somebody has cancelled it
	ByBudget Cause = "budget" // it has used what it may
	ByTime   Cause = "time"   // it has taken, or was silent for, as long as it may
	ByPolicy Cause = "policy" // its agent acted without a decision, or it could no longer be recorded
)

// Outcome is how a run has ended that was ended by the cause, "" for none.
func (c Cause) Outcome() string {
	switch c {
	case ByPerson:
		return "cancelled"
	case ByBudget, ByTime, ByPolicy:
		return "stopped"
	}
	return ""
}

// Problem is why an action has failed, on one line, as far as the CLI has said; "" for one that has not failed.
func (e Event) Problem() string {
	if e.Type != Acted || e.OK == nil || *e.OK || e.Action == nil {
		return ""
	}
	said := e.Message
	for _, name := range []string{"error", "error_message", "result_preview", "output_preview"} {
		if text, ok := e.Action.Detail[name].(string); ok && said == "" {
			said = text
		}
	}
	if said = strings.Join(strings.Fields(said), " "); said == e.Action.Title {
		return "" // it is shown already
	}
	if exit := number(e.Action.Detail["exit_code"]); exit != "" && exit != "0" {
		said = strings.TrimSuffix("exit code "+exit+": "+said, ": ")
	}
	return said
}

// number is a whole number, as a translator has set it or as it comes out of JSON; "" for anything else.
func number(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case interface{ String() string }:
		return v.String()
	}
	return ""
}
