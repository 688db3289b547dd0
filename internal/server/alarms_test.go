package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/alarm"
	"signalbox/internal/clock"
	"signalbox/internal/deliver/delivertest"
	"signalbox/internal/protocol"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// bells is a protocol in which anybody can raise an alarm, for the tests of what people see of them.
type bells struct{ core protocol.Core }

func withBells() protocol.Protocol {
	return protocol.Protocol{
		Name: "bells", Label: "Bells",
		Open: func(_ context.Context, core protocol.Core) (protocol.Service, error) { return &bells{core}, nil },
	}
}

func (b *bells) Routes() []wire.Route {
	return []wire.Route{{
		Method: "POST", Path: "/bells/{workspace}/{title}", Summary: "Raise an alarm", Auth: wire.Viewer,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			err := b.core.Alarms.Raise(r.Context(), alarm.Alarm{
				Workspace: r.PathValue("workspace"), Kind: "bell", Title: r.PathValue("title"), Detail: "It rang.\nLook.",
			})
			if err != nil {
				return err
			}
			return wire.Reply(w, http.StatusCreated, map[string]bool{"rang": true})
		},
	}}
}

func (b *bells) Timers() map[string]clock.Handler { return nil }

func (b *bells) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func TestAnAlarmIsShownUntilSomebodyClosesIt(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		hook, took := delivertest.Listen(t, "{}")
		b := start(t, address, map[string]string{"notify.webhook": hook}, withBells())
		b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
		var confined struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"olga","role":"admin","workspace":"other"}`, &confined)
		viewer := b.operator("vera", "viewer")
		alarms := func(call, token string) (list alarm.List) {
			t.Helper()
			status, answer, _ := b.do(request{call: call, token: token})
			if err := json.Unmarshal([]byte(answer), &list); status != 200 || err != nil {
				t.Fatalf("%s: %d %s", call, status, answer)
			}
			return list
		}

		for range 3 { // an agent that tries again makes one alarm
			b.ops(201, "POST /bells/default/Tampered", "", nil)
		}
		b.ops(201, "POST /bells/other/Elsewhere", "", nil)
		if got := alarms("GET /ops/alarms", b.token()).Alarms; len(got) != 2 || got[1].Title != "Tampered" {
			t.Fatalf("%+v", got)
		}
		first := alarms("GET /ops/alarms", b.token()).Alarms[1].ID
		if got := alarms("GET /ops/alarms", confined.Token).Alarms; len(got) != 1 || got[0].Title != "Elsewhere" {
			t.Errorf("behind the wall: %+v", got)
		}
		if page := b.signedIn(confined.Token).sees("/ui/alarms", "Elsewhere"); strings.Contains(page, "Tampered") {
			t.Error("the page shows an alarm of another workspace")
		}
		for _, page := range []string{"/ui/inbox", "/ui/agents", "/ui/settings", "/ui/alarms"} {
			b.signedIn(b.token()).sees(page, "And 2 alarms in all.", "Elsewhere", `role="alert"`)
		}
		var status struct{ Alarms []alarm.Alarm }
		b.ops(200, "GET /ops/status", "", &status)
		if len(status.Alarms) != 2 {
			t.Errorf("%+v", status)
		}
		for range 2 {
			told := testbed.Receive(t, "a call", took)
			var body struct {
				Event string
				Alarm *alarm.Alarm
				Gate  any
			}
			if err := json.Unmarshal([]byte(told.Body), &body); err != nil || body.Event != alarm.Raised || body.Alarm == nil ||
				body.Alarm.Kind != "bell" || body.Gate != nil {
				t.Errorf("%s %v", told.Body, err)
			}
		}

		for token, want := range map[string]int{viewer: 403, confined.Token: 404} {
			if got, answer, _ := b.do(request{
				call: "POST /ops/alarms/" + first + "/close", token: token, body: `{}`,
			}); got != want {
				t.Errorf("%d, want %d: %s", got, want, answer)
			}
		}
		b.ops(200, "POST /ops/alarms/"+first+"/close", `{"note":"It was me."}`, nil)
		b.ops(409, "POST /ops/alarms/"+first+"/close", `{}`, nil)
		if page := b.signedIn(b.token()).sees("/ui/inbox", "Elsewhere"); strings.Contains(page, "Tampered") {
			t.Error("a closed alarm is still shown")
		}
		b.signedIn(b.token()).sees("/ui/alarms", "It was me.")
		b.ops(201, "POST /bells/default/Tampered", "", nil) // it happens again
		if got := alarms("GET /ops/alarms", b.token()).Alarms; len(got) != 2 || got[0].ID == first {
			t.Errorf("%+v", got)
		}
		if got := alarms("GET /ops/alarms?all=true", b.token()).Alarms; len(got) != 3 {
			t.Errorf("%+v", got)
		}
	})
}
