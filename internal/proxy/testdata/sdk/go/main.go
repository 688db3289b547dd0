// Command matrix runs the scenarios of the matrix with one of the Go SDKs, and prints what
// its user would see: one line of JSON for each. Arguments: the SDK, the two addresses, the
// agents' keys, and how the names of the scenarios begin if not all are meant.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	anthropic1 "github.com/anthropics/anthropic-sdk-go"
	option1 "github.com/anthropics/anthropic-sdk-go/option"
	anthropic2 "github.com/anthropics/anthropic-sdk-go/v2"
	option2 "github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// call is one call of a scenario.
type call struct {
	id, base, key, prefer string
	stream, again         bool // again: the user sends the call once more
	timeout               time.Duration
	retries               int
}

// seen is what the user sees.
type seen struct {
	ID       string   `json:"id"`
	Scenario string   `json:"scenario"`
	SDK      string   `json:"sdk"`
	Text     string   `json:"text"`
	Tools    []string `json:"tools"`
	Ended    *bool    `json:"ended,omitempty"`
	Error    string   `json:"error,omitempty"`
	Message  string   `json:"message,omitempty"`
	Status   int      `json:"status,omitempty"`
	Kind     string   `json:"kind,omitempty"` // what the error is, however it came
	Again    *seen    `json:"again,omitempty"`
}

// maker has the functions by which an SDK makes its options.
type maker[O any] struct {
	url, key func(string) O
	header   func(name, value string) O
	retries  func(int) O
	timeout  func(time.Duration) O
}

// options are those of a call to the path of a provider.
func (m maker[O]) options(c call, path string) []O {
	all := []O{m.url(c.base + path), m.key(c.key), m.header("X-Scenario", c.id), m.retries(c.retries)}
	if c.timeout > 0 {
		all = append(all, m.timeout(c.timeout))
	}
	if c.prefer != "" {
		all = append(all, m.header("Prefer", c.prefer))
	}
	if c.again {
		all = append(all, m.header("X-Again", "yes"))
	}
	return all
}

// events is a stream of an SDK.
type events[E any] interface {
	Next() bool
	Current() E
	Err() error
}

// answer is the message of a call: from its stream, whose events take puts together and
// which ends with an event for which take is true, or from once.
func answer[E, M any](c call, s *seen, stream func() events[E], take func(*M, E) (last bool, err error), once func() (*M, error)) (m M, err error) {
	if !c.stream {
		got, err := once()
		if err == nil {
			m = *got
		}
		return m, err
	}
	ended, all := false, stream()
	for all.Next() && err == nil {
		var last bool
		last, err = take(&m, all.Current())
		ended = ended || last
	}
	s.Ended = &ended
	return m, errors.Join(err, all.Err())
}

// kinds are the errors that a client tells apart.
var kinds = regexp.MustCompile(`"(permission_error|timeout_error|overloaded_error)"`)

// fail notes the error of a call, with the status that the SDK's error has.
func fail[E error](s *seen, err error, status func(E) (status int, body string)) {
	if err == nil {
		return
	}
	s.Error, s.Message = "error", err.Error()
	body := s.Message
	if e, ok := errors.AsType[E](err); ok {
		s.Status, body = status(e)
	}
	if found := kinds.FindStringSubmatch(body); found != nil {
		s.Kind = found[1]
	}
}

// block is a part of a message of Anthropic's.
func (s *seen) block(kind, text, tool string, input json.RawMessage) {
	s.Text += text
	if kind == "tool_use" {
		s.Tools = append(s.Tools, tool+" "+string(input))
	}
}

const anthropicPath = "/v1/proxy"

func withAnthropic1(c call) (s seen) {
	m := maker[option1.RequestOption]{option1.WithBaseURL, option1.WithAPIKey, option1.WithHeader, option1.WithMaxRetries, option1.WithRequestTimeout}
	client := anthropic1.NewClient(m.options(c, anthropicPath)...)
	ask := anthropic1.MessageNewParams{Model: "claude-sonnet-4-6", MaxTokens: 50, Messages: []anthropic1.MessageParam{anthropic1.NewUserMessage(anthropic1.NewTextBlock(c.id))}}
	got, err := answer(c, &s, func() events[anthropic1.MessageStreamEventUnion] {
		return client.Messages.NewStreaming(context.Background(), ask)
	}, func(m *anthropic1.Message, e anthropic1.MessageStreamEventUnion) (bool, error) {
		return e.Type == "message_stop", m.Accumulate(e)
	}, func() (*anthropic1.Message, error) { return client.Messages.New(context.Background(), ask) })
	fail(&s, err, func(e *anthropic1.Error) (int, string) { return e.StatusCode, e.RawJSON() })
	for _, b := range got.Content {
		s.block(b.Type, b.Text, b.Name, b.Input)
	}
	return s
}

func withAnthropic2(c call) (s seen) {
	m := maker[option2.RequestOption]{option2.WithBaseURL, option2.WithAPIKey, option2.WithHeader, option2.WithMaxRetries, option2.WithRequestTimeout}
	client := anthropic2.NewClient(m.options(c, anthropicPath)...)
	ask := anthropic2.MessageNewParams{Model: "claude-sonnet-4-6", MaxTokens: 50, Messages: []anthropic2.MessageParam{anthropic2.NewUserMessage(anthropic2.NewTextBlock(c.id))}}
	got, err := answer(c, &s, func() events[anthropic2.MessageStreamEventUnion] {
		return client.Messages.NewStreaming(context.Background(), ask)
	}, func(m *anthropic2.Message, e anthropic2.MessageStreamEventUnion) (bool, error) {
		return e.Type == "message_stop", m.Accumulate(e)
	}, func() (*anthropic2.Message, error) { return client.Messages.New(context.Background(), ask) })
	fail(&s, err, func(e *anthropic2.Error) (int, string) { return e.StatusCode, e.RawJSON() })
	for _, b := range got.Content {
		s.block(b.Type, b.Text, b.Name, b.Input)
	}
	return s
}

func withOpenAI(c call) (s seen) {
	m := maker[option.RequestOption]{option.WithBaseURL, option.WithAPIKey, option.WithHeader, option.WithMaxRetries, option.WithRequestTimeout}
	client := openai.NewClient(m.options(c, "/v1/proxy/openai/v1")...)
	ask := openai.ChatCompletionNewParams{Model: "gpt-4o", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(c.id)}}
	got, err := answer(c, &s, func() events[openai.ChatCompletionChunk] {
		return client.Chat.Completions.NewStreaming(context.Background(), ask)
	}, func(m *openai.ChatCompletionAccumulator, chunk openai.ChatCompletionChunk) (bool, error) {
		m.AddChunk(chunk)
		return len(chunk.Choices) > 0 && chunk.Choices[0].FinishReason != "", nil
	}, func() (*openai.ChatCompletionAccumulator, error) {
		m, err := client.Chat.Completions.New(context.Background(), ask)
		if err != nil {
			return nil, err
		}
		return &openai.ChatCompletionAccumulator{ChatCompletion: *m}, nil
	})
	fail(&s, err, func(e *openai.Error) (int, string) { return e.StatusCode, e.RawJSON() })
	for _, choice := range got.Choices {
		s.Text += choice.Message.Content
		for _, t := range choice.Message.ToolCalls {
			s.Tools = append(s.Tools, t.Function.Name+" "+t.Function.Arguments)
		}
	}
	return s
}

func main() {
	sdk, base, silent := os.Args[1], os.Args[2], os.Args[3]
	var keys map[string]string
	if err := json.Unmarshal([]byte(os.Args[4]), &keys); err != nil {
		panic(err)
	}
	with := map[string]func(call) seen{"anthropic-go-1": withAnthropic1, "anthropic-go-2": withAnthropic2, "openai-go-3": withOpenAI}[sdk]
	plain := func(c call) call { c.base, c.key = base, keys["plain"]; return c }
	scenarios := map[string]call{
		"pass":                 plain(call{}),
		"pass-stream":          plain(call{stream: true}),
		"held-approve":         plain(call{timeout: 20 * time.Second, retries: 20}),
		"held-stream-approve":  plain(call{stream: true}),
		"quick-reject":         {base: silent, key: keys["silent"]},
		"late-reject":          plain(call{retries: 20}),
		"stream-reject":        plain(call{stream: true}),
		"quick-expire":         {base: silent, key: keys["silent"]},
		"late-expire":          plain(call{retries: 20}),
		"stream-expire":        plain(call{stream: true}),
		"soft-reject":          {base: base, key: keys["soft"], retries: 20},
		"soft-stream-reject":   {base: base, key: keys["soft"], stream: true},
		"pending-never":        {base: base, key: keys["short"], retries: 2},
		"pending-stream-never": {base: base, key: keys["short"], stream: true},
		"async-never":          plain(call{prefer: "respond-async"}),
		"async-stream-never":   plain(call{prefer: "respond-async", stream: true}),
		"silent-late":          {base: silent, key: keys["silent"], timeout: 8 * time.Second, retries: 1},
		"deferred":             plain(call{retries: 1}),
		"overloaded":           plain(call{retries: 1}),
		"redirected":           plain(call{}),
		"broken-stream":        plain(call{stream: true}),
	}
	if len(os.Args) > 5 {
		scenarios["restart-approve"], scenarios["restart-stream-approve"] = plain(call{retries: 2}), plain(call{stream: true})
		maps.DeleteFunc(scenarios, func(name string, _ call) bool { return !strings.HasPrefix(name, os.Args[5]) })
	}
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	var running sync.WaitGroup
	for name, c := range scenarios {
		running.Go(func() {
			c.id = sdk + "/one/" + name
			s := with(c)
			if name == "silent-late" { // the operator decides now; the same call has its reply
				c.again, c.timeout, c.retries = true, time.Minute, 2
				again := with(c)
				s.Again = &again
			}
			s.ID, s.Scenario, s.SDK = c.id, name, sdk
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(s)
		})
	}
	running.Wait()
}
