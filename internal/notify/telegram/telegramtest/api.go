// Package telegramtest is a Telegram for tests, as far as we use it: it takes what a bot says, and tells the bot what
// people write and press. It knows nothing of gates and runs, and only tests import it.
package telegramtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	Away   atomic.Bool  // nothing that the bot says is taken; it is told what people say
	Forbid atomic.Value // the chat that the bot may not write to, a string
	Asking atomic.Int64 // how many ask for updates at the moment
	Asked  atomic.Int64 // how often somebody has
	Crowd  atomic.Int64 // the most that ever did
	Again  atomic.Bool  // the next message is told twice, as after an acknowledgement that was lost

	t        testing.TB
	took     func(Call)
	messages atomic.Int64
	written  atomic.Int64 // by people

	mu      sync.Mutex
	updates []update // that the bot has not acknowledged
	last    int64
	news    chan struct{}
	files   map[string][]byte
}

// update is one that the bot is told of until it has acknowledged it.
type update struct {
	id   int64
	text string
}

// firstWritten is before the first number of a message of people, far from those of the bot.
const firstWritten = 1000

// New starts a Telegram that reports every call to took before it answers, except for those that ask for updates and
// those that it refuses.
func New(t testing.TB, took func(Call)) *API {
	t.Helper()
	a := &API{t: t, took: took, news: make(chan struct{}), files: map[string][]byte{}}
	a.written.Store(firstWritten)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /file/bot"+Token+"/{file}", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, _ = w.Write(a.files[r.PathValue("file")])
	})
	mux.HandleFunc("POST /bot"+Token+"/{method}", a.serve)
	a.URL = testbed.ServeHTTP(t, mux)
	return a
}

func (a *API) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseMultipartForm(32 << 20) // the server notices that a caller has gone when the body is read
	c := Call{Method: r.PathValue("method"), Values: map[string]string{}}
	if c.Method == "getUpdates" {
		a.poll(w, r)
		return
	}
	if a.Away.Load() {
		http.Error(w, "Bad Gateway", http.StatusBadGateway)
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
	if c.Method == "getFile" {
		a.mu.Lock()
		content, there := a.files[c.Values["file_id"]]
		a.mu.Unlock()
		if !there {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprint(w, `{"ok":false,"error_code":400,"description":"Bad Request: wrong file_id"}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"file_id":%q,"file_path":%q,"file_size":%d}}`, c.Values["file_id"],
			c.Values["file_id"], len(content))
		return
	}
	if f, head, err := r.FormFile("document"); err == nil {
		content, _ := io.ReadAll(f)
		c.Values["document"], c.Values["document_name"] = string(content), head.Filename
	}
	number := c.Values["message_id"] // that of the message that is changed
	if c.Method == "sendMessage" || c.Method == "sendDocument" {
		c.Message = a.messages.Add(1)
		number = fmt.Sprint(c.Message)
	}
	a.took(c)
	_, _ = fmt.Fprintf(w, `{"ok":true,"result":{"message_id":%s,"date":1,"chat":{"id":%s,"type":"supergroup"}}}`,
		number, c.Values["chat_id"])
}

// poll answers when there is something, as Telegram does: with what was not acknowledged, which is what stands before
// the offset.
func (a *API) poll(w http.ResponseWriter, r *http.Request) {
	a.Asked.Add(1)
	a.Crowd.Store(max(a.Crowd.Load(), a.Asking.Add(1)))
	defer a.Asking.Add(-1)
	offset, _ := strconv.ParseInt(r.FormValue("offset"), 10, 64)
	for patience := time.After(200 * time.Millisecond); ; {
		a.mu.Lock()
		a.updates = slices.DeleteFunc(a.updates, func(u update) bool { return u.id < offset })
		var told []string
		for _, u := range a.updates {
			told = append(told, u.text)
		}
		news := a.news
		a.mu.Unlock()
		if len(told) > 0 {
			_, _ = fmt.Fprintf(w, `{"ok":true,"result":[%s]}`, strings.Join(told, ","))
			return
		}
		select {
		case <-news:
		case <-patience:
			_, _ = fmt.Fprint(w, `{"ok":true,"result":[]}`)
			return
		case <-r.Context().Done():
			return
		}
	}
}

// Unacknowledged is how many updates the bot has not acknowledged.
func (a *API) Unacknowledged() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.updates)
}

// Press has a user press the button with the data.
func (a *API) Press(user int64, data string) {
	a.update(map[string]any{"callback_query": map[string]any{
		"id": "q-1", "from": map[string]any{"id": user, "first_name": "x"}, "chat_instance": "1", "data": data,
	}})
}

// Write has a user write to a group, and returns the number of the message. If replyTo is not 0, it is the number of
// the bot's message that this one answers, and reply the text of it.
func (a *API) Write(group, user int64, text string, replyTo int64, reply string) (number int64) {
	return a.say(group, user, map[string]any{"text": text}, replyTo, reply)
}

// Send has a user send a file, with a text below it.
func (a *API) Send(group, user int64, caption, name string, content []byte) (number int64) {
	id := fmt.Sprintf("file-%d", a.written.Load())
	a.mu.Lock()
	a.files[id] = content
	a.mu.Unlock()
	return a.say(group, user, map[string]any{
		"caption": caption, "document": map[string]any{"file_id": id, "file_unique_id": id, "file_name": name, "file_size": len(content)},
	}, 0, "")
}

// Forget makes a file one that Telegram does not hand out, such as one that it has kept for too long.
func (a *API) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.files)
}

func (a *API) say(group, user int64, m map[string]any, replyTo int64, reply string) (number int64) {
	kind := "group"
	if group > 0 {
		kind = "private"
	}
	number = a.written.Add(1)
	chat := map[string]any{"id": group, "type": kind}
	m["message_id"], m["date"], m["chat"], m["from"] = number, 1, chat, map[string]any{"id": user, "first_name": "x"}
	if replyTo != 0 {
		m["reply_to_message"] = map[string]any{
			"message_id": replyTo, "date": 1, "chat": chat, "text": reply,
			"from": map[string]any{"id": 1, "is_bot": true, "first_name": "bot"},
		}
	}
	a.update(map[string]any{"message": m})
	if a.Again.Swap(false) {
		a.update(map[string]any{"message": m})
	}
	return number
}

func (a *API) update(u map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	u["update_id"] = a.last
	text, err := json.Marshal(u)
	if err != nil {
		a.t.Fatal(err)
	}
	a.updates = append(a.updates, update{a.last, string(text)})
	close(a.news)
	a.news = make(chan struct{})
}
