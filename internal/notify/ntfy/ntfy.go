// Package ntfy tells subscribers of an ntfy topic of gates: on telephones, with a tap
// that opens the gate. Nothing is decided there, since ntfy does not know who taps.
//
// A topic is as good as a password for those who know it, so it is a secret, and only
// the host of the server is named. An outcome is a message of its own.
package ntfy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/wire"
)

// Name is the kind of channel.
const Name = "ntfy"

// Topic is a channel that is an ntfy topic.
type Topic struct {
	// server is the address without the topic, host what may be shown of it.
	server, host string
	topic        wire.Secret
	token        wire.Secret
	http         *http.Client
}

// NewTopic makes the channel for an address such as https://ntfy.sh/topic. A user name in the
// address is refused, because only the token's setting is kept secret.
func NewTopic(address, token wire.Secret, client *http.Client) (*Topic, error) {
	u, err := url.Parse(address.Reveal())
	if err == nil {
		at := strings.LastIndex(strings.TrimSuffix(u.Path, "/"), "/")
		topic := ""
		if at >= 0 {
			topic = strings.TrimSuffix(u.Path[at+1:], "/")
			u.Path, u.RawPath = u.Path[:at], ""
		}
		if (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && topic != "" {
			return &Topic{
				server: u.Scheme + "://" + u.Host + u.EscapedPath(), host: u.Host, topic: wire.NewSecret(topic),
				token: token, http: client,
			}, nil
		}
	}
	return nil, fault.New(fault.InvalidConfig,
		"notify.ntfy.url should be the address of a topic, such as "+
			"https://ntfy.sh/topic, with the token in notify.ntfy.token.").About("notify.ntfy.url")
}

// Name is the kind of channel.
func (t *Topic) Name() string { return Name }

// Target names the server and not the topic.
func (t *Topic) Target() string { return Name + ":" + t.host }

// Buttons would be pressed by nobody in particular.
func (t *Topic) Buttons(gate.Gate) bool { return false }

// published is the JSON that ntfy takes. It has no headers to break out of.
type published struct {
	Topic    string   `json:"topic"`
	Title    string   `json:"title"`
	Message  string   `json:"message"`
	Priority int      `json:"priority"`
	Click    string   `json:"click"`
	Tags     []string `json:"tags,omitempty"`
}

// priorities are ntfy's, from 1 to 5: what is urgent rings.
var priorities = map[string]int{"low": 2, "medium": 3, "high": 5}

// priority is ntfy's, from 1 to 5. Alarms and gates of high risk ring; outcomes are silent.
func priority(m notify.Message) int {
	if m.Alarm != nil {
		return priorities["high"]
	}
	if m.Gate.Status != gate.Pending {
		return 2 // an outcome waits for nobody
	}
	return priorities[m.Gate.Risk]
}

// size is what a character takes of ntfy's 4096 bytes.
func size(r rune) int { return max(utf8.RuneLen(r), 1) }

// Room leaves some of the 4096 bytes for why something is missing.
func (t *Topic) Room() notify.Room { return notify.Room{Most: 3800, Size: size} }

// Send publishes a message as JSON, so that nothing of it becomes a header.
func (t *Topic) Send(ctx context.Context, m notify.Message) deliver.Result {
	var text strings.Builder
	for _, line := range m.Lines {
		text.WriteString(line.Name + ": " + line.Text + "\n")
	}
	body, err := wire.Marshal(published{
		Topic: t.topic.Reveal(), Title: m.Headline, Message: strings.TrimSpace(text.String()), Priority: priority(m),
		Click: m.Link,
	})
	if err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "internal", Text: "The message cannot be written as JSON."}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.server, bytes.NewReader(body))
	if err != nil {
		return deliver.Result{
			Verdict: deliver.Hopeless, Class: "invalid",
			Text: "The address of the ntfy server cannot be called.",
		}
	}
	req.Header.Set("Content-Type", "application/json")
	if token := t.token.Reveal(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := t.http.Do(req)
	if err != nil {
		return deliver.ExplainDial(err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection can be used again
	return notify.Judge(res.StatusCode, res.Header)
}
