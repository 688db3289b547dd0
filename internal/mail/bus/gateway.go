package bus

import (
	"context"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/mailbox"
	"signalbox/internal/wire"
)

// inbound is the topic of mail that has come.
const inbound = "amp.inbound"

// Mailbox is the agent's folder, opened anew for each use: other commands change it too.
type Mailbox func() (*mailbox.Box, error)

// gateway is the component that has the agent's mail.
type gateway struct {
	box Mailbox
	bus *Bus
}

func (g *gateway) handle(ctx context.Context, r request) (any, error) {
	do := map[string]func(context.Context, *mailbox.Box, request) (any, error){
		"amp.send": g.send, "amp.inbox": g.inbox,
		"amp.identity": g.identity,
	}[r.method]
	if do == nil {
		return nil, &rpcError{codeMethod, "There is no method " + r.method + ".", nil}
	}
	box, err := g.box()
	if err != nil {
		return nil, err
	}
	return do(ctx, box, r)
}

// send signs a message with the agent's key and sends it.
func (g *gateway) send(ctx context.Context, box *mailbox.Box, r request) (any, error) {
	var p struct {
		To        string `json:"to"`
		Subject   string `json:"subject"`
		Priority  string `json:"priority"`
		InReplyTo string `json:"in_reply_to"`
		ThreadID  string `json:"thread_id"`
		Payload   struct {
			Type    string   `json:"type"`
			Message string   `json:"message"`
			Context wire.Raw `json:"context"`
		} `json:"payload"`
	}
	if err := r.read(&p); err != nil {
		return nil, err
	}
	if p.To == "" || p.Subject == "" || p.Payload.Message == "" {
		return nil, badParams("A message needs to, subject, and payload with a message.")
	}
	d := mailbox.Draft{
		To: p.To, Subject: p.Subject, Body: p.Payload.Message, Priority: p.Priority, Type: p.Payload.Type,
		InReplyTo: p.InReplyTo, ThreadID: p.ThreadID,
	}
	if p.Payload.Context != nil && p.Payload.Context.Kind() != 'n' {
		d.Context = append(d.Context, p.Payload.Context...)
	}
	return box.Send(ctx, d)
}

// summary is a message of the inbox. What is foreign in it is wrapped.
type summary struct {
	ID        string   `json:"id"`
	From      string   `json:"from"`
	Subject   string   `json:"subject"`
	Priority  string   `json:"priority"`
	Timestamp string   `json:"timestamp"`
	Status    string   `json:"status"`
	Trust     string   `json:"trust_level"`
	Flags     []string `json:"injection_flags"`
	Message   string   `json:"message"`
}

func (g *gateway) inbox(_ context.Context, box *mailbox.Box, r request) (any, error) {
	p := struct {
		Limit  int    `json:"limit"`
		Status string `json:"status"`
	}{Limit: 10}
	if err := r.read(&p); err != nil {
		return nil, err
	}
	if p.Limit < 1 || p.Limit > 1000 {
		return nil, badParams("The limit should be 1 to 1000.")
	}
	switch p.Status {
	case "", "unread", "read", "all":
	default:
		return nil, badParams("The status should be unread, read or all.")
	}
	messages, _, err := box.List(mailbox.Inbox)
	if err != nil {
		return nil, err
	}
	list := []summary{}
	for i := range messages {
		m := &messages[i]
		status := "unread"
		if m.Read {
			status = "read"
		}
		if p.Status != "" && p.Status != "all" && p.Status != status || len(list) == p.Limit {
			continue
		}
		e := &m.Envelope
		list = append(list, summary{
			e.ID, e.From, m.Show(e.Subject), e.Priority, e.Timestamp, status,
			string(m.Security.Trust), m.Security.Flags, m.Show(m.Payload.Message),
		})
	}
	return map[string]any{"messages": list, "count": len(list)}, nil
}

func (g *gateway) identity(_ context.Context, box *mailbox.Box, _ request) (any, error) {
	return map[string]string{
		"address": box.Address, "fingerprint": box.Fingerprint(), "provider": box.Provider,
		"tenant": box.Tenant,
	}, nil
}

// maxWait is the longest that a provider lets us wait for mail in one call.
const maxWait = 30 * time.Second

// run fetches mail as it comes, and publishes it. What nobody has subscribed to stays in
// the inbox, where it is on disk before it is published.
func (g *gateway) run(ctx context.Context) {
	every := milliseconds(g.bus.Gateway.FetchInterval)
	for ctx.Err() == nil {
		begun := time.Now()
		if g.fetch(ctx, min(every, maxWait)) {
			continue // more may have come
		}
		select {
		case <-time.After(max(0, every-time.Since(begun))):
		case <-ctx.Done():
		}
	}
}

// fetch fetches once, and reports whether there was mail.
func (g *gateway) fetch(ctx context.Context, wait time.Duration) bool {
	box, err := g.box()
	if err != nil {
		g.trouble(err)
		return false
	}
	got, err := box.Fetch(ctx, mailbox.Fetching{Wait: wait})
	if err != nil && ctx.Err() == nil {
		g.trouble(err)
	}
	for i := range got.New {
		m := &got.New[i]
		payload := m.Payload
		payload.Message = m.Show(payload.Message)
		g.bus.publish(inbound, gatewayName, encodeRaw(map[string]any{
			"id": m.Envelope.ID, "envelope": m.Envelope, "payload": payload, "trust_level": m.Security.Trust,
			"injection_flags": m.Security.Flags,
		}))
	}
	return len(got.New) > 0
}

// trouble tells components why no mail comes.
func (g *gateway) trouble(err error) {
	g.bus.tell("", "gateway.error", map[string]string{"message": fault.From(err).Message})
}
