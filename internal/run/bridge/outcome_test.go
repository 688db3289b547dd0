package bridge_test

import (
	"cmp"
	"strings"
	"testing"

	"signalbox/internal/store/storetest"
)

// ended is the end of a run that was not done.
func ended(cause, problem string) string {
	outcome := ""
	if cause != "" {
		outcome = map[string]string{"person": "cancelled"}[cause]
		outcome = `"outcome":"` + cmp.Or(outcome, "stopped") + `","cause":"` + cause + `",`
	}
	return `{"type":"completed","engine":"claude","ok":false,"answer":"Half of it.",` + outcome +
		`"resume":{"engine":"claude","value":"c1"},"error":"` + problem + `","usage":null}`
}

func TestEveryOutcomeIsToldInItsChat(t *testing.T) {
	a, folder := newAPI(t), t.TempDir()
	n := start(t, storetest.SQLite(t), a, folder)
	for _, c := range []struct{ cause, problem, says string }{
		{"", "claude failed (rc=3).", "failed"},
		{"person", "not this branch", "cancelled"},
		{"budget", "the run has cost $2.0100", "stopped (budget)"},
		{"time", "claude was silent for 30m0s", "stopped (time)"},
		{"policy", "the agent acted without a decision", "stopped (policy)"},
	} {
		a.Write(private, 77, "/new fix it", 0, "")
		r := n.next()
		n.report(r.ID, 1, started, ended(c.cause, c.problem))
		a.next("editMessageText", c.says+" · claude")
		if got := a.next("sendMessage", c.problem).Values["text"]; !strings.HasPrefix(got, c.says+": "+c.problem+"\n\nHalf of it.") {
			t.Errorf("%s: %s", c.says, got)
		}
		a.Write(private, 77, "/runs", 0, "")
		if got := a.next("sendMessage", r.ID).Values["text"]; !strings.HasPrefix(got, c.says+" · claude · ") {
			t.Errorf("%s: %s", c.says, got)
		}
	}
}

func TestStopAndRunsAreAboutTheirChat(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a, folder := newAPI(t), t.TempDir()
		n := start(t, address, a, folder)
		for _, command := range []string{"/stop", "/cancel"} {
			a.Write(private, 77, command, 0, "")
			a.next("sendMessage", "No run of this chat is running")
		}
		a.Write(private, 77, "/runs", 0, "")
		a.next("sendMessage", "This chat has no runs yet")
		a.Write(group, 77, "/claude in the group", 0, "")
		elsewhere := n.next()
		a.Write(private, 77, "the first", 0, "")
		first := n.next()
		a.Write(private, 77, "/new the second", 0, "")
		second := n.next()
		stopped := func(id string) bool {
			r, err := n.runs.Get(t.Context(), id)
			n.Must(err)
			return r.Stop == "cancelled in Telegram by ann"
		}
		// The newest that is running, and no other.
		a.Write(private, 77, "/stop", 0, "")
		a.next("sendMessage", "told to stop")
		if !stopped(second.ID) || stopped(first.ID) || stopped(elsewhere.ID) {
			t.Errorf("%v %v %v", stopped(second.ID), stopped(first.ID), stopped(elsewhere.ID))
		}
		n.report(second.ID, 1, ended("person", "cancelled"))
		a.Write(private, 77, "/stop", 0, "")
		a.next("sendMessage", "told to stop")
		if !stopped(first.ID) || stopped(elsewhere.ID) {
			t.Error("it stopped another one")
		}
		a.Write(private, 77, "/runs", 0, "")
		list := a.next("sendMessage", first.ID).Values["text"]
		if !strings.Contains(list, second.ID) || strings.Contains(list, elsewhere.ID) || strings.Contains(list, "in the group") ||
			strings.Index(list, second.ID) > strings.Index(list, first.ID) {
			t.Errorf("%s", list)
		}
		a.Write(private, 88, "/stop", 0, "")
		a.next("sendMessage", "runs need the role operator")
	})
}
