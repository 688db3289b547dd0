package conform

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/wire"
)

// letter makes the request of a message, signs it, and remembers what was sent. The
// JSON is written by hand: the payload has to go out byte for byte as the case has it.
func (b *mailBench) letter(l Letter) []byte {
	from := b.actors[l.From]
	// Words such as $bob are replaced in every text.
	or := func(text, absent string) string {
		if text == "" {
			text = absent
		}
		return b.expand(text)
	}
	s := &sentLetter{
		from: from, subject: or(l.Subject, "Hello"), priority: or(l.Priority, "normal"),
		inReplyTo: b.expand(l.InReplyTo), payload: or(l.Payload, `{"message":"How are you?","type":"request"}`),
		signed: l.Sign != "none",
	}
	b.sent = s
	to := or(l.To, "$bob")
	canonical := or(l.Canonical, s.payload)
	sum := sha256.Sum256([]byte(canonical))
	s.hash = base64.StdEncoding.EncodeToString(sum[:])
	text := strings.Join([]string{
		or(l.SignedFrom, from.address), or(l.SignedTo, to), or(l.SignedSubject, s.subject),
		s.priority, s.inReplyTo, s.hash,
	}, "|")
	private := from.private
	if l.Sign == "stranger" {
		private = b.newActor("stranger", "").private
	}
	// What is signed: from, to, subject, priority, in_reply_to and the hash of the payload,
	// with bars between.
	signature := ed25519.Sign(private, []byte(text))
	// One bit, so that nothing but the signature itself is wrong.
	if l.Sign == "flip" {
		signature[17] ^= 4
	}
	quote := func(v string) string { q, _ := wire.Marshal(v); return string(q) } // a text
	head := []string{`"to":` + quote(to), `"subject":` + quote(s.subject)}
	if l.Priority != "" {
		head = append(head, `"priority":`+quote(s.priority))
	}
	if s.inReplyTo != "" {
		head = append(head, `"in_reply_to":`+quote(s.inReplyTo))
	}
	if s.signed {
		head = append(head, `"signature":`+quote(base64.StdEncoding.EncodeToString(signature)))
	}
	if l.More != "" {
		head = append(head, b.expand(l.More))
	}
	members := strings.Join(head, ",\n  ")
	// Some clients send a whole envelope with an id and a time of their own, which a
	// provider must not believe.
	if l.Shape == "envelope" {
		return []byte(`{"envelope": {"version":"amp/0.1","id":"msg_1794705054874_0e03cdd0","from":` + quote(from.address) +
			`,"timestamp":"2020-01-01T00:00:00Z","thread_id":"msg_1794705054874_0e03cdd0",` + members + `}, "payload": ` +
			s.payload + `}`)
	}
	return []byte("{" + members + ",\n  \"payload\": " + s.payload + "\n}")
}

// receive looks for the message in the queue, and checks what every message has to
// have.
func (b *mailBench) receive(ctx context.Context, w Receipt, e MailExpect) error {
	r, err := b.call(ctx, "GET /v1/messages/pending", nil, b.actors[w.By].key)
	if err != nil {
		return err
	}
	var page struct {
		Messages []wire.Raw `json:"messages"`
	}
	if err := wire.UnmarshalPart(r.body, &page); err != nil {
		return fmt.Errorf("%.300s: %w", r.body, err)
	}
	// Other messages of the case may be in the queue too.
	for _, raw := range page.Messages {
		value, err := wire.Data(raw)
		if err != nil {
			return err
		}
		if id, _ := lookup(value, "id"); fmt.Sprint(id) != b.sent.id {
			continue
		}
		if w.Absent {
			return errors.New("the message is in the queue")
		}
		if err := b.checkMessage(raw); err != nil {
			return err
		}
		return e.check(reply{http: r.http, header: r.header, body: raw}, b.expand)
	}
	if !w.Absent {
		return fmt.Errorf("the message %s is not in the queue: %.300s", b.sent.id, r.body)
	}
	return nil
}

// checkMessage checks the bytes of the payload, the envelope, and the signature with
// the key beside it.
func (b *mailBench) checkMessage(raw []byte) error {
	members, err := wire.Members(raw)
	if err != nil {
		return err
	}
	if !bytes.Equal(members["payload"], []byte(b.sent.payload)) {
		return fmt.Errorf("the payload is %.200q, and was sent as %.200q", members["payload"], b.sent.payload)
	}
	var m struct {
		Envelope map[string]any `json:"envelope"`
		Key      string         `json:"sender_public_key"`
	}
	if err := wire.UnmarshalPart(raw, &m); err != nil {
		return err
	}
	text := func(name string) string { s, _ := m.Envelope[name].(string); return s }
	// Members that every envelope has.
	for _, name := range []string{"version", "id", "from", "to", "subject", "priority", "timestamp", "thread_id"} {
		if text(name) == "" {
			return fmt.Errorf("the envelope has no %s", name)
		}
	}
	// Clients sign "" for an absent field, and the text null for one that is null.
	if reply, there := m.Envelope["in_reply_to"]; there && reply == nil {
		return errors.New("in_reply_to is null; it should be absent")
	}
	if !idLike.MatchString(text("id")) {
		return fmt.Errorf("the id %q is not one that clients take", text("id"))
	}
	signature, there := m.Envelope["signature"].(string)
	if !there {
		return errors.New("signature should be text, \"\" for none")
	}
	if !b.sent.signed {
		if signature != "" {
			return errors.New("there is a signature where none was sent")
		}
		return nil
	}
	block, _ := pem.Decode([]byte(m.Key))
	if block == nil {
		return fmt.Errorf("sender_public_key is not PEM: %.80q", m.Key)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return err
	}
	sig, _ := base64.StdEncoding.DecodeString(signature)
	// Some clients sign the subject trimmed and with its escapes.
	for _, subject := range []string{
		text("subject"),
		strings.TrimSpace(strings.NewReplacer(`\`, `\\`, "\t", `\t`).Replace(text("subject"))),
	} {
		if ed25519.Verify(key.(ed25519.PublicKey),
			[]byte(strings.Join([]string{text("from"), text("to"), subject, text("priority"), text("in_reply_to"), b.sent.hash},
				"|")), sig) {
			return nil
		}
	}
	return errors.New("the signature does not verify with the envelope as it was delivered")
}

// checkHook checks the call of a webhook: its signature, its age, and the message in
// it.
func (b *mailBench) checkHook(got hookCall, e MailExpect) error {
	stampText := got.header.Get("X-AMP-Timestamp")
	seconds, err := strconv.ParseInt(stampText, 10, 64)
	if off := time.Since(time.Unix(seconds, 0)); err != nil || off.Abs() > 5*time.Minute {
		return fmt.Errorf("X-AMP-Timestamp is %q", stampText)
	}
	// The secret is the one that the cases register.
	h := hmac.New(sha256.New, []byte("whsec_test"))
	h.Write([]byte(stampText + "."))
	h.Write(got.body)
	if want := "sha256=" + hex.EncodeToString(h.Sum(nil)); got.header.Get("X-AMP-Signature") != want {
		return fmt.Errorf("X-AMP-Signature is %q, and should be %q", got.header.Get("X-AMP-Signature"), want)
	}
	if id := got.header.Get("X-AMP-Message-Id"); id != b.sent.id {
		return fmt.Errorf("X-AMP-Message-Id is %q, and should be %q", id, b.sent.id)
	}
	if err := b.checkMessage(got.body); err != nil {
		return err
	}
	return e.check(reply{http: http.StatusOK, header: got.header, body: got.body}, b.expand)
}

// socket does what a step says on a WebSocket.
func (b *mailBench) socket(ctx context.Context, s Socket, e MailExpect) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn := b.sockets[s.As]
	switch {
	case s.Open != "":
		address := strings.Replace(strings.TrimSuffix(b.URL, "/"), "http", "ws", 1) + s.Open
		options := &websocket.DialOptions{Subprotocols: []string{"amp.v1"}}
		conn, _, err := websocket.Dial(ctx, address, options) //nolint:bodyclose // the connection is the body
		if err != nil {
			return err
		}
		conn.SetReadLimit(4 << 20)
		b.sockets[s.As] = conn
		return nil
	case conn == nil:
		return fmt.Errorf("%s has no socket", s.As)
	case s.Close:
		delete(b.sockets, s.As)
		return conn.Close(websocket.StatusNormalClosure, "")
	case s.Frame != "":
		return conn.Write(ctx, websocket.MessageText, []byte(b.expand(s.Frame)))
	}
	// A read that times out would close the connection, so a ping asks for a frame instead.
	if s.Quiet {
		// A context that ends ends the connection, so what is asked for comes next.
		if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"ping"}`)); err != nil {
			return err
		}
		s.Next = "pong"
	}
	_, text, err := conn.Read(ctx)
	if s.Next == "closed" {
		if code := websocket.CloseStatus(err); err == nil || s.Code != 0 && int(code) != s.Code {
			return fmt.Errorf("the socket should be closed with %d: %d %.200s", s.Code, code, text)
		}
		return nil
	}
	if err != nil {
		return err
	}
	value, err := wire.Data(text)
	if err != nil {
		return err
	}
	if kind, _ := lookup(value, "type"); fmt.Sprint(kind) != s.Next {
		return fmt.Errorf("the next frame should be %s: %.300s", s.Next, text)
	}
	return e.check(reply{http: http.StatusOK, body: text}, b.expand)
}

// lookup finds the value at a path of names and numbers.
func lookup(value any, path string) (any, bool) {
	for part := range strings.SplitSeq(path, ".") {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[part]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			if part == "length" {
				value = len(v)
				continue
			}
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// check compares a reply with what is expected. expand replaces words in expectations.
// Every error has to have a message.
func (e MailExpect) check(r reply, expand func(string) string) error {
	if e.HTTP != 0 && r.http != e.HTTP {
		return fmt.Errorf("answered with %d, and should be with %d: %.300s", r.http, e.HTTP, r.body)
	}
	for name, part := range e.Headers {
		if got := r.header.Get(name); !strings.Contains(got, expand(part)) || got == "" {
			return fmt.Errorf("the header %s is %q, and should have %q", name, got, expand(part))
		}
	}
	switch {
	case !strings.Contains(string(r.body), expand(e.Says)):
		return fmt.Errorf("the answer does not say %q: %.300s", expand(e.Says), r.body)
	case r.took < e.AtLeast, e.AtMost > 0 && r.took > e.AtMost:
		return fmt.Errorf("answered after %s", r.took.Round(time.Millisecond))
	}
	value, err := wire.Data(r.body)
	if err != nil && (e.Error != "" || len(e.Is)+len(e.Has)+len(e.Matches) > 0) {
		return fmt.Errorf("the answer is not JSON: %.300s", r.body)
	}
	if r.http >= http.StatusBadRequest {
		if message, ok := lookup(value, "message"); !ok || message == "" {
			return fmt.Errorf("the error has no message: %.300s", r.body)
		}
	}
	return e.checkValue(value, r.body, expand)
}

// checkValue compares the values in a reply.
func (e MailExpect) checkValue(value any, body []byte, expand func(string) string) error {
	if code, _ := lookup(value, "error"); e.Error != "" && code != e.Error {
		return fmt.Errorf("the error is %v, and should be %s: %.300s", code, e.Error, body)
	}
	if field, _ := lookup(value, "field"); e.Field != "" && field != e.Field {
		return fmt.Errorf("the error is about %v, and should be about %s: %.300s", field, e.Field, body)
	}
	for path, want := range e.Is {
		if got, ok := lookup(value, path); !ok || fmt.Sprint(got) != expand(want) {
			return fmt.Errorf("%s is %v, and should be %q: %.400s", path, got, expand(want), body)
		}
	}
	for _, path := range e.Has {
		if got, ok := lookup(value, path); !ok || got == "" || got == nil {
			return fmt.Errorf("%s is missing: %.400s", path, body)
		}
	}
	for _, path := range e.Lacks {
		if got, ok := lookup(value, path); ok {
			return fmt.Errorf("%s is %v, and should be absent", path, got)
		}
	}
	for path, form := range e.Matches {
		if got, _ := lookup(value, path); !regexp.MustCompile(form).MatchString(fmt.Sprint(got)) {
			return fmt.Errorf("%s is %v, and should match %s", path, got, form)
		}
	}
	return nil
}
