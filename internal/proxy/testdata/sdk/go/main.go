// Command matrix runs the scenarios of the matrix with one of the Go SDKs, and prints what
// its user would see: one line of JSON for each. Arguments: the SDK, the two addresses, and
// the agents' keys.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
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
	stream                bool
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
	Again    *seen    `json:"again,omitempty"`
}

func (s *seen) fail(err error, status int) {
	if err != nil {
		s.Error, s.Message, s.Status = "error", err.Error(), status
	}
}

func withAnthropic1(c call) (s seen) {
	options := []option1.RequestOption{option1.WithBaseURL(c.base + "/v1/proxy"), option1.WithAPIKey(c.key), option1.WithHeader("X-Scenario", c.id), option1.WithMaxRetries(c.retries)}
	if c.timeout > 0 {
		options = append(options, option1.WithRequestTimeout(c.timeout))
	}
	if c.prefer != "" {
		options = append(options, option1.WithHeader("Prefer", c.prefer))
	}
	client := anthropic1.NewClient(options...)
	ask := anthropic1.MessageNewParams{Model: "claude-sonnet-4-6", MaxTokens: 50, Messages: []anthropic1.MessageParam{anthropic1.NewUserMessage(anthropic1.NewTextBlock(c.id))}}
	var m anthropic1.Message
	var err error
	if c.stream {
		ended := false
		stream := client.Messages.NewStreaming(context.Background(), ask)
		for stream.Next() {
			e := stream.Current()
			if err = m.Accumulate(e); err != nil {
				break
			}
			ended = ended || e.Type == "message_stop"
		}
		err = errors.Join(err, stream.Err())
		s.Ended = &ended
	} else if got, problem := client.Messages.New(context.Background(), ask); problem != nil {
		err = problem
	} else {
		m = *got
	}
	var status int
	if e := (*anthropic1.Error)(nil); errors.As(err, &e) {
		status = e.StatusCode
	}
	s.fail(err, status)
	for _, b := range m.Content {
		s.Text += b.Text
		if b.Type == "tool_use" {
			s.Tools = append(s.Tools, b.Name+" "+string(b.Input))
		}
	}
	return s
}

func withAnthropic2(c call) (s seen) {
	options := []option2.RequestOption{option2.WithBaseURL(c.base + "/v1/proxy"), option2.WithAPIKey(c.key), option2.WithHeader("X-Scenario", c.id), option2.WithMaxRetries(c.retries)}
	if c.timeout > 0 {
		options = append(options, option2.WithRequestTimeout(c.timeout))
	}
	if c.prefer != "" {
		options = append(options, option2.WithHeader("Prefer", c.prefer))
	}
	client := anthropic2.NewClient(options...)
	ask := anthropic2.MessageNewParams{Model: "claude-sonnet-4-6", MaxTokens: 50, Messages: []anthropic2.MessageParam{anthropic2.NewUserMessage(anthropic2.NewTextBlock(c.id))}}
	var m anthropic2.Message
	var err error
	if c.stream {
		ended := false
		stream := client.Messages.NewStreaming(context.Background(), ask)
		for stream.Next() {
			e := stream.Current()
			if err = m.Accumulate(e); err != nil {
				break
			}
			ended = ended || e.Type == "message_stop"
		}
		err = errors.Join(err, stream.Err())
		s.Ended = &ended
	} else if got, problem := client.Messages.New(context.Background(), ask); problem != nil {
		err = problem
	} else {
		m = *got
	}
	var status int
	if e := (*anthropic2.Error)(nil); errors.As(err, &e) {
		status = e.StatusCode
	}
	s.fail(err, status)
	for _, b := range m.Content {
		s.Text += b.Text
		if b.Type == "tool_use" {
			s.Tools = append(s.Tools, b.Name+" "+string(b.Input))
		}
	}
	return s
}

func withOpenAI(c call) (s seen) {
	options := []option.RequestOption{option.WithBaseURL(c.base + "/v1/proxy/openai/v1"), option.WithAPIKey(c.key), option.WithHeader("X-Scenario", c.id), option.WithMaxRetries(c.retries)}
	if c.timeout > 0 {
		options = append(options, option.WithRequestTimeout(c.timeout))
	}
	if c.prefer != "" {
		options = append(options, option.WithHeader("Prefer", c.prefer))
	}
	client := openai.NewClient(options...)
	ask := openai.ChatCompletionNewParams{Model: "gpt-4o", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(c.id)}}
	var m openai.ChatCompletion
	var err error
	if c.stream {
		ended := false
		stream := client.Chat.Completions.NewStreaming(context.Background(), ask)
		all := openai.ChatCompletionAccumulator{}
		for stream.Next() {
			chunk := stream.Current()
			all.AddChunk(chunk)
			ended = ended || len(chunk.Choices) > 0 && chunk.Choices[0].FinishReason != ""
		}
		err = stream.Err()
		m = all.ChatCompletion
		s.Ended = &ended
	} else if got, problem := client.Chat.Completions.New(context.Background(), ask); problem != nil {
		err = problem
	} else {
		m = *got
	}
	var status int
	if e := (*openai.Error)(nil); errors.As(err, &e) {
		status = e.StatusCode
	}
	s.fail(err, status)
	for _, choice := range m.Choices {
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
		"held-approve":         plain(call{timeout: 3 * time.Second, retries: 2}),
		"held-stream-approve":  plain(call{stream: true}),
		"quick-reject":         {base: silent, key: keys["silent"]},
		"stream-reject":        plain(call{stream: true}),
		"soft-reject":          {base: base, key: keys["soft"]},
		"soft-stream-reject":   {base: base, key: keys["soft"], stream: true},
		"pending-never":        {base: base, key: keys["short"]},
		"pending-stream-never": {base: base, key: keys["short"], stream: true},
		"async-never":          plain(call{prefer: "respond-async"}),
		"async-stream-never":   plain(call{prefer: "respond-async", stream: true}),
		"silent-late":          {base: silent, key: keys["silent"], timeout: 2 * time.Second, retries: 2},
		"deferred":             plain(call{retries: 1}),
		"overloaded":           plain(call{retries: 1}),
		"redirected":           plain(call{}),
		"broken-stream":        plain(call{stream: true}),
	}
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	var running sync.WaitGroup
	for name, c := range scenarios {
		running.Go(func() {
			c.id = sdk + "/one/" + name
			s := with(c)
			if name == "silent-late" { // the decision comes meanwhile; the same call has its reply
				time.Sleep(400 * time.Millisecond)
				c.timeout = 15 * time.Second
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
