package bus

import (
	"context"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/mailbox"
	"signalbox/internal/wire"
)

// inbound is the topic to which fetched mail is published.
const inbound = "amp.inbound"

// Mailbox opens the agent's folder. It is called for every use, since other commands change the
// folder and a Box is a snapshot.
type Mailbox func() (*mailbox.Box, error)

// gateway is the component for mail. It fetches for all components, and signs with the agent's key.
type gateway struct {
	box Mailbox
	bus *Bus
}

// handle runs a method of the gateway. The call waits for the provider; other components do not.
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

// send is amp.send: the members of a message as the protocol names them, signed and sent.
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
	// null is no context.
	if p.Payload.Context != nil && p.Payload.Context.Kind() != 'n' {
		d.Context = append(d.Context, p.Payload.Context...)
	}
	return box.Send(ctx, d)
}

// summary is a message in the answer to amp.inbox. Texts of foreign senders are wrapped.
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

// inbox is amp.inbox: messages that were fetched, newest first. It asks no provider.
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
	// Damaged files are the agent's to repair; `signalbox mail status` lists them.
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
			e.ID, m.Sender(), m.Show(e.Subject), m.Priority(), mailbox.Plain(e.Timestamp), status,
			string(m.Security.Trust), m.Security.Flags, m.Show(m.Payload.Message),
		})
	}
	return map[string]any{"messages": list, "count": len(list)}, nil
}

// identity is amp.identity: who the agent is.
func (g *gateway) identity(_ context.Context, box *mailbox.Box, _ request) (any, error) {
	return map[string]string{
		"address": box.Address, "fingerprint": box.Fingerprint(), "provider": box.Provider,
		"tenant": box.Tenant,
	}, nil
}

// maxWait is the longest that a provider holds a poll.
const maxWait = 30 * time.Second

// run fetches mail and publishes it, until ctx ends. It uses long polls, so that mail arrives at
// once where the provider has them, and pauses between polls where it has none. Mail that nobody
// subscribes to stays in the inbox.
func (g *gateway) run(ctx context.Context) {
	every := milliseconds(g.bus.Gateway.FetchInterval)
	for ctx.Err() == nil {
		// A provider without long polls answers at once; then the rest of the interval is waited here.
		begun := time.Now()
		if g.fetch(ctx, min(every, maxWait)) {
			continue // there may be more
		}
		select {
		case <-time.After(max(0, every-time.Since(begun))):
		case <-ctx.Done():
		}
	}
}

// fetch fetches once and publishes what is new, with its text as a model should see it. It reports
// whether there was any.
func (g *gateway) fetch(ctx context.Context, wait time.Duration) bool {
	box, err := g.box()
	if err != nil {
		g.reportError(err)
		return false
	}
	// A partial failure is no error; the next round asks again.
	got, err := box.Fetch(ctx, mailbox.Fetching{Wait: wait})
	if err != nil && ctx.Err() == nil {
		g.reportError(err)
	}
	for i := range got.New {
		g.bus.publish(inbound, gatewayName, encodeRaw(arrival(&got.New[i])))
	}
	return len(got.New) > 0
}

// arrival is a message as it is published: a copy in which every text of a foreign sender is wrapped. The message on
// disk stays as it was signed. The attachments are as the provider knows them.
func arrival(m *mailbox.Message) map[string]any {
	envelope, payload := m.Envelope, m.Payload
	envelope.From, envelope.Subject, envelope.Priority = m.Sender(), m.Show(envelope.Subject), m.Priority()
	payload.Message, payload.Attachments = m.Show(payload.Message), m.Security.Files
	if m.Foreign() {
		payload.Type = m.Type()
		if text := string(payload.Context); text != "" && text != "null" {
			payload.Context = []byte(encodeRaw(m.Show(text)))
		}
		for _, field := range []*string{
			&envelope.Version, &envelope.To, &envelope.Timestamp, &envelope.Signature, &envelope.ThreadID,
			&envelope.InReplyTo, &envelope.ExpiresAt,
		} {
			*field = mailbox.Plain(*field)
		}
	}
	return map[string]any{
		"id": envelope.ID, "envelope": envelope, "payload": payload, "trust_level": m.Security.Trust,
		"injection_flags": m.Security.Flags,
	}
}

// reportError sends the event gateway.error, so that components know why no mail arrives.
func (g *gateway) reportError(err error) {
	g.bus.notifyAll("", "gateway.error", map[string]string{"message": fault.From(err).Message})
}
