package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

func TestEventsArriveAsTheyHappen(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := testbed.Context(t)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/ops/events?after=0", nil)
		req.Header.Set("Authorization", "Bearer "+b.token())
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b.ops(201, "POST /ops/agents", `{"name":"streamed"}`, nil)
		var seen bytes.Buffer
		buffer := make([]byte, 4096)
		for !strings.Contains(seen.String(), "streamed") {
			n, err := res.Body.Read(buffer)
			if err != nil {
				t.Fatalf("%v after %s", err, seen.String())
			}
			seen.Write(buffer[:n])
		}
		for _, s := range []string{"id: 1\nevent: workspace.added\ndata: {", "id: 5\nevent: agent.added\n"} {
			if !strings.Contains(seen.String(), s) {
				t.Errorf("the stream lacks %q:\n%s", s, seen.String())
			}
		}
	})
}

func TestAStreamEndsWhenItsTokenIsNoLongerGood(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var eve struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"eve","role":"viewer"}`, &eve)
		ctx := testbed.Context(t)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/ops/events", nil)
		req.Header.Set("Authorization", "Bearer "+eve.Token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b.ops(204, "DELETE /ops/operators/eve", "", nil)
		if text, err := io.ReadAll(res.Body); err != nil {
			t.Errorf("%v after %s", err, text)
		}
	})
}

func TestTheSchemaIsTheGoldenOne(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		db := storetest.Open(t, address, server.Migrations()...)
		got, err := db.Schema(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "schema."+db.Name())
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("the schema differs from %s (write it anew with -update if that is meant):\n%s", path, diff)
		}
	})
}

func TestWhatTheRosterDoesCanBeRebuilt(t *testing.T) {
	eachBox(t, func(_ *testing.T, b *box) {
		for i := range 12 {
			b.ops(201, "POST /ops/agents", fmt.Sprintf(`{"name":"a-%d","labels":{"n":"%d"}}`, i, i), nil)
		}
		b.ops(200, "PATCH /ops/agents/a-1", `{"suspended":true,"trust":"untrusted"}`, nil)
		b.ops(200, "PATCH /ops/agents/a-1", `{"suspended":false}`, nil)
		b.ops(204, "DELETE /ops/agents/a-2", "", nil)
		b.ops(201, "POST /ops/agents", `{"name":"a-2"}`, nil)
		b.ops(201, "POST /ops/operators", `{"name":"o"}`, nil)
		b.ops(201, "POST /ops/owners", `{"name":"stays"}`, nil)
		b.ops(201, "POST /ops/owners", `{"name":"goes"}`, nil)
		b.ops(201, "POST /ops/agents", `{"name":"owned","owner":"goes","public_key":"`+publicKey+`"}`, nil)
		b.ops(204, "DELETE /ops/owners/goes", "", nil)
		b.ops(200, "PATCH /ops/agents/owned", `{"rate_limit":7}`, nil)
		var keys struct{ Keys []struct{ ID string } }
		b.ops(200, "GET /ops/keys", "", &keys)
		b.ops(201, "POST /ops/keys/"+keys.Keys[3].ID+"/rotate", "", nil)
		b.ops(200, "POST /ops/keys/"+keys.Keys[4].ID+"/revoke", "", nil)
		b.wantRebuilt(30)
	})
}
