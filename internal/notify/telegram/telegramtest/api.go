// Package telegramtest is a Telegram for tests, as far as we use it: it takes what a bot says, and tells the bot what
// people write and press. It knows nothing of gates and runs, and only tests import it.
package telegramtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/testbed"
)

// Token is that of the only bot.
const Token = "4711:a-secret-token"

// Call is one call of the Bot API.
type Call struct {
	Method  string
	Values  map[string]string
	Message int64 // the number that a new message got
}

// API is a Telegram. It serves until the end of the test.
type API struct {
	URL    string
	Limit  atomic.Bool  // the next call has to come again in a second
	Forbid atomic.Value // the chat that the bot may not write to, a string
	Asking atomic.Int64 // how many ask for updates at the moment
	Asked  atomic.Int64 // how often somebody has
	Crowd  atomic.Int64 // the most that ever did

	t        testing.TB
	took     func(Call)
	messages atomic.Int64
	numbers  atomic.Int64
	updates  chan string
}

// New starts a Telegram that reports every call to took before it answers, except for those that ask for updates and
// those that it refuses.
func New(t testing.TB, took func(Call)) *API {
	t.Helper()
	a := &API{t: t, took: took, updates: make(chan string, 10)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /bot"+Token+"/{method}", a.serve)
	a.URL = testbed.ServeHTTP(t, mux)
	return a
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseMultipartForm(1 << 20) // the server notices that a caller has gone when the body is read
	c := Call{Method: r.PathValue("method"), Values: map[string]string{}}
	if c.Method == "getUpdates" {
		a.poll(w, r)
		return
	}
	if a.Limit.Swap(false) {
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprint(w, `{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":1}}`)
		return
	}
	for name := range r.Form {
		c.Values[name] = r.Form.Get(name)
	}
	if c.Values["chat_id"] == a.Forbid.Load() {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w,
			`{"ok":false,"error_code":403,"description":"Forbidden: bot can't initiate conversation with a user"}`)
		return
	}
	if c.Method == "answerCallbackQuery" {
		a.took(c)
		_, _ = fmt.Fprint(w, `{"ok":true,"result":true}`)
		return
	}
	number := c.Values["message_id"] // that of the message that is changed
	if c.Method == "sendMessage" {
		c.Message = a.messages.Add(1)
		number = fmt.Sprint(c.Message)
	}
	a.took(c)
	_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"message_id":%s,"date":1,"chat":{"id":%s,"type":"supergroup"}}}`,
		number, c.Values["chat_id"])
}

// poll answers when there is something, as Telegram does.
func (a *API) poll(w http.ResponseWriter, r *http.Request) {
	a.Asked.Add(1)
	a.Crowd.Store(max(a.Crowd.Load(), a.Asking.Add(1)))
	defer a.Asking.Add(-1)
	select {
	case update := <-a.updates:
		_, _ = fmt.Fprintf(w, `{"ok":true,"result":[%s]}`, update)
	case <-time.After(200 * time.Millisecond):
		_, _ = fmt.Fprint(w, `{"ok":true,"result":[]}`)
	case <-r.Context().Done():
	}
}

// Press has a user press the button with the data.
func (a *API) Press(user int64, data string) {
	a.update(map[string]any{"callback_query": map[string]any{
		"id": "q-1", "from": map[string]any{"id": user, "first_name": "x"}, "chat_instance": "1", "data": data,
	}})
}

// Write has a user write to a group. If replyTo is not 0, it is the number of the bot's message that this one answers,
// and reply the text of it.
func (a *API) Write(group, user int64, text string, replyTo int64, reply string) {
	chat := map[string]any{"id": group, "type": "group"}
	m := map[string]any{
		"message_id": 1, "date": 1, "chat": chat, "text": text,
		"from": map[string]any{"id": user, "first_name": "x"},
	}
	if replyTo != 0 {
		m["reply_to_message"] = map[string]any{
			"message_id": replyTo, "date": 1, "chat": chat, "text": reply,
			"from": map[string]any{"id": 1, "is_bot": true, "first_name": "bot"},
		}
	}
	a.update(map[string]any{"message": m})
}

func (a *API) update(u map[string]any) {
	u["update_id"] = a.numbers.Add(1)
	text, err := json.Marshal(u)
	if err != nil {
		a.t.Fatal(err)
	}
	a.updates <- string(text)
}
