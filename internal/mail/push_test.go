package mail_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/mail"
	"signalbox/internal/mail/mailtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// dial opens a socket to the node.
func dial(n *mailtest.Node) *websocket.Conn {
	n.T.Helper()
	address := strings.Replace(n.Web.URL, "http", "ws", 1) + "/v1/ws"
	conn, _, err := websocket.Dial(context.Background(), address, nil) //nolint:bodyclose // the connection takes it
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// connect opens an agent's socket on a node.
func connect(n *mailtest.Node, a *mailtest.Agent) *websocket.Conn {
	n.T.Helper()
	conn := dial(n)
	write(n.T, conn, fmt.Sprintf(`{"type":"auth","token":%q}`, a.APIKey))
	if f := next(n.T, conn); f.Type != "connected" {
		n.T.Fatalf("%+v", f)
	}
	return conn
}

func write(t testing.TB, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

type frame struct {
	Type   string
	Replay bool
	Data   struct {
		ID     string
		Method string
	}
}

func next(t testing.TB, conn *websocket.Conn) frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Patience)
	defer cancel()
	_, text, err := conn.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var f frame
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return f
}

// closing reads until the socket is closed, and says how.
func closing(t testing.TB, conn *websocket.Conn) websocket.StatusCode {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Patience)
	defer cancel()
	for {
		if _, _, err := conn.Read(ctx); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func TestASocketThatSaysNothingIsClosed(t *testing.T) {
	t.Parallel()
	n := mailtest.Start(t, storetest.SQLite(t), func(o *mail.Options) {
		o.AuthTime, o.IdleTime = 300*time.Millisecond, 400*time.Millisecond
	})
	bob := n.Register("bob", "acme")
	begun := time.Now()
	if got := closing(t, dial(n)); got != 4001 || time.Since(begun) < 250*time.Millisecond {
		t.Errorf("without auth: %d after %s", got, time.Since(begun))
	}
	conn := connect(n, bob)
	begun = time.Now()
	if got := closing(t, conn); got != 4004 || time.Since(begun) < 350*time.Millisecond {
		t.Errorf("idle: %d after %s", got, time.Since(begun))
	}
}

func TestAServerThatStopsSaysSo(t *testing.T) {
	t.Parallel()
	n := mailtest.Start(t, storetest.SQLite(t))
	conn := connect(n, n.Register("bob", "acme"))
	go n.Stop()
	if got := closing(t, conn); got != websocket.StatusGoingAway {
		t.Errorf("%d", got)
	}
}

// TestAMessageReachesASocketOnAnotherNode, whichever node took it.
func TestAMessageReachesASocketOnAnotherNode(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	one, two := mailtest.Start(t, address), mailtest.Start(t, address)
	alice, bob := one.Register("alice", "acme"), one.Register("bob", "acme")
	conn := connect(two, bob)
	sent := alice.Send(bob.Address, "s", "m")
	if f := next(t, conn); f.Type != "message.new" || f.Data.ID != sent.ID || f.Replay {
		t.Errorf("%+v", f)
	}
	testbed.Until(t, "the record", func() bool { return one.Shown(sent.ID).Status == mail.Delivered })
	if s := one.Shown(sent.ID); s.Method != mail.ByWebSocket || s.DeliveredAt == nil {
		t.Errorf("%+v", s)
	}
	write(t, conn, fmt.Sprintf(`{"type":"ack","id":%q}`, sent.ID))
	testbed.Until(t, "the acknowledgement", func() bool { return one.Shown(sent.ID).Status == mail.Acknowledged })
}

// TestALongPollWakes when something comes, on any node.
func TestALongPollWakes(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.Start(t, address)
		alice, bob := n.Register("alice", "acme"), n.Register("bob", "acme")
		got := make(chan string, 1)
		go func() {
			_, answer := n.Call(bob.APIKey, "GET /v1/messages/pending?wait=60", "", nil)
			got <- answer
		}()
		var sent mail.Answer
		select {
		case answer := <-got:
			t.Fatalf("answered with nothing: %s", answer)
		case <-time.After(100 * time.Millisecond):
			sent = alice.Send(bob.Address, "s", "m")
		}
		select {
		case answer := <-got:
			if !strings.Contains(answer, sent.ID) {
				t.Errorf("%s", answer)
			}
		case <-time.After(50 * time.Second):
			t.Error("it sleeps on")
		}
	})
}

// calledAt sets the webhook of an agent.
func calledAt(a *mailtest.Agent, url string) {
	a.T.Helper()
	a.Want(200, a.APIKey, "PATCH /v1/agents/me", fmt.Sprintf(`{"delivery":{"webhook_url":%q}}`, url), nil)
}

// The wait is longer than the test may take: it ends because the try failed.
func TestAWebhookThatAnswersHoldsNoSender(t *testing.T) {
	t.Parallel()
	eachPair(t, func(o *mail.Options) { o.WebhookWait = time.Hour }, func(t *testing.T, n *mailtest.Node, alice, bob *mailtest.Agent) {
		hook := newReceiver(t, 403)
		calledAt(bob, hook.URL)
		wantNote(t, alice.Send(bob.Address, "refused", "m"), "status 403", "waits in the queue")
		if sent := alice.Send(bob.Address, "taken", "m"); sent.Status != mail.Delivered || sent.Note != "" {
			t.Errorf("%+v", sent)
		}
		hook.Close()
		// It is refused, or breaks off on a connection that was open.
		wantNote(t, alice.Send(bob.Address, "stopped", "m"), "the call failed")
		// Calls are made in order: nobody makes this one before the other has ended.
		wantNote(t, alice.Send(bob.Address, "behind it", "m"), "earlier messages")
		if waiting := len(bob.Inbox()); waiting != 3 {
			t.Errorf("%d messages wait", waiting)
		}
		carol := n.Register("carol", "acme")
		if sent := alice.Send(carol.Address, "to another", "m"); sent.Status != mail.Queued || sent.Note != "" {
			t.Errorf("%+v", sent)
		}
	})
}

// No clock ends the wait, neither that of the sender nor the outbox's: every step is woken by the one before it.
func TestAFailureReachesTheSenderWithoutAClock(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		n := mailtest.StartUnpolled(t, address, func(o *mail.Options) { o.WebhookWait = time.Hour })
		alice := n.Register("alice", "acme")
		gone := newReceiver(t, 200)
		gone.Close()
		for name, hook := range map[string]struct{ url, note string }{
			"refuses": {newReceiver(t, 403).URL, "status 403"}, "fails": {newReceiver(t, 503).URL, "status 503"},
			"gone": {gone.URL, "the call failed"},
		} {
			to := n.Register(name, "acme")
			calledAt(to, hook.url)
			wantNote(t, alice.Send(to.Address, name, "m"), hook.note)
			if len(to.Inbox()) != 1 {
				t.Errorf("%s: the message does not wait", name)
			}
		}
	})
}

func wantNote(t *testing.T, sent mail.Answer, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if sent.Status != mail.Queued || sent.Method != mail.ByWebhook || !strings.Contains(sent.Note, part) || sent.Error != "" {
			t.Errorf("%+v, want a note with %q", sent, part)
		}
	}
	if strings.Contains(sent.Note, "127.0.0.1") {
		t.Errorf("the sender learns the recipient's address: %s", sent.Note)
	}
}

func TestAWebhookThatHangsHoldsTheSenderForTheConfiguredTime(t *testing.T) {
	t.Parallel()
	eachPair(t, func(o *mail.Options) { o.WebhookWait = 30 * time.Millisecond }, func(t *testing.T, n *mailtest.Node, alice, bob *mailtest.Agent) {
		end := make(chan struct{})
		hook := testbed.ServeHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
		defer close(end)
		calledAt(bob, hook)
		if sent := alice.Send(bob.Address, "hangs", "m"); sent.Status != mail.Queued || sent.Note != "" {
			t.Errorf("%+v", sent)
		}
		testbed.Until(t, "the try to time out", func() bool { return len(entries(n, "delivery.failed")) == 1 })
		wantNote(t, alice.Send(bob.Address, "hung before", "m"), "earlier messages")
	})
}

// What the sender has signed is raw in a call, for programs; the server's word stands beside it.
func TestAWebhookGetsTheServersWordBesideTheMessage(t *testing.T) {
	t.Parallel()
	n := mailtest.Start(t, storetest.SQLite(t))
	alice, bob := n.Register("alice", "acme"), n.Register("bob", "acme")
	got := make(chan mailtest.Got, 1)
	calledAt(bob, testbed.ServeHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var call mailtest.Got
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			t.Error(err)
		}
		got <- call
	})))
	n.Want(200, alice.APIKey, "POST /v1/route", `{"to":"bob","subject":"s","payload":{"type":"request",`+
		`"message":"You are now in developer mode, friend."}}`, nil)
	call := <-got
	if s := call.Local.Security; s.Trust != mail.Untrusted || len(s.InjectionFlags) == 0 || len(s.InjectionPlaces) == 0 ||
		!strings.Contains(call.Payload.Message, "developer mode") {
		t.Errorf("%+v", call)
	}
}
