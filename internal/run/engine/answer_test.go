package engine_test

import (
	"strings"
	"testing"

	"signalbox/internal/run/engine"
)

// TestAnswersAreWhatWasSaid: why a run failed is its error, and what is said apart stays apart.
func TestAnswersAreWhatWasSaid(t *testing.T) {
	const step = `{"type":"step_start","sessionID":"ses_1","part":{}}`
	said := func(id, text string) string {
		return `{"type":"text","sessionID":"ses_1","part":{"id":"` + id + `","text":"` + text + `"}}`
	}
	const stop = `{"type":"step_finish","sessionID":"ses_1","part":{"reason":"stop"}}`
	const begun = `{"type":"system","subtype":"init","session_id":"T-1"}`
	const whole = "0199a000-1111-7000-8000-000000000001"
	for _, c := range []struct {
		name, engine, resume     string
		lines                    []string
		answer, problem, session string
	}{
		{
			"two texts of opencode", "opencode", "",
			[]string{step, said("a", "One."), said("b", "Two."), stop},
			"One.\n\nTwo.", "", "ses_1",
		},
		{
			"two steps of opencode", "opencode", "",
			[]string{step, said("", "One."), step, said("", "Two."), stop},
			"One.\n\nTwo.", "", "ses_1",
		},
		{
			"a text of opencode in two parts", "opencode", "",
			[]string{step, said("a", "On"), said("a", "e."), step, stop},
			"One.", "", "ses_1",
		},
		{
			"an error of opencode", "opencode", "",
			[]string{step, `{"type":"error","sessionID":"ses_1","error":{"name":"x","data":{"message":"overloaded"}}}`},
			"", "overloaded", "ses_1",
		},
		{
			"an error of amp", "amp", "",
			[]string{begun, `{"type":"result","subtype":"error","is_error":true,"result":"no credit","session_id":"T-1"}`},
			"", "no credit", "T-1",
		},
		{
			"a silent success of amp", "amp", "",
			[]string{begun, `{"type":"result","subtype":"success","is_error":false,"result":"All done.","session_id":"T-1"}`},
			"All done.", "", "T-1",
		},
		{
			"pi with the beginning of an id", "pi", "0199a000",
			[]string{`{"type":"session","id":"` + whole + `"}`, `{"type":"agent_end","messages":[]}`},
			"", "", whole,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := engine.Find(c.engine)
			if err != nil {
				t.Fatal(err)
			}
			var last engine.Event
			j := engine.Job{Resume: engine.Resume{Engine: c.engine, Value: c.resume}}
			s := e.NewStream(j, func(e engine.Event) { last = e })
			for _, line := range c.lines {
				s.Line([]byte(line))
			}
			s.Finish(engine.Exit{})
			if last.Type != engine.Completed || last.Answer != c.answer || !strings.HasPrefix(last.Error, c.problem) ||
				(last.Error == "") != *last.OK || (c.problem == "") != *last.OK || last.Resume.Value != c.session {
				t.Errorf("%+v %+v", last, last.Resume)
			}
		})
	}
}
