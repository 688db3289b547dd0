package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/price"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

const (
	embeddingsPath = "/v1/proxy/openai/v1/embeddings"
	countPath      = "/v1/proxy/v1/messages/count_tokens"
)

// only is the one call that is on record.
func (n *node) only() (one price.Cost, u price.Usage, status int) {
	n.T.Helper()
	all := n.called(1)
	if len(all) != 1 || len(all[0].Calls) != 1 {
		n.T.Fatalf("%+v", all)
	}
	c := all[0].Calls[0]
	return c.Cost, c.Usage, c.Status
}

// What providers report is priced by its kinds. The figures are worked out by hand from the providers' lists.
func TestEveryKindOfTokenHasItsPrice(t *testing.T) {
	message := func(model, usage string) string {
		return `{"id":"m","type":"message","model":"` + model + `","content":[],"usage":` + usage + `}`
	}
	begin := func(usage string) string {
		return frameOf("message_start", `{"type":"message_start","message":{"id":"m","model":"claude-sonnet-4-6","content":[],"usage":`+
			usage+`}}`)
	}
	end := func(usage string) string {
		return frameOf("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+usage+`}`) +
			frameOf("message_stop", `{"type":"message_stop"}`)
	}
	for name, c := range map[string]struct {
		path, ask string
		reply     string
		events    bool
		want      price.Usage
		dollars   string
	}{
		"a write for an hour costs twice": {
			path: messagesPath, ask: fmt.Sprintf(messageAsk, false), reply: message("claude-sonnet-4-6",
				`{"input_tokens":0,"cache_creation_input_tokens":1000000,"cache_creation":{"ephemeral_1h_input_tokens":1000000},"output_tokens":0}`),
			want: price.Usage{CacheWrite1h: 1e6}, dollars: "$6",
		},
		"and for minutes a quarter more": {
			path: messagesPath, ask: fmt.Sprintf(messageAsk, false), reply: message("claude-sonnet-4-6",
				`{"input_tokens":10,"cache_creation_input_tokens":1000000,"cache_creation":{"ephemeral_5m_input_tokens":600000,`+
					`"ephemeral_1h_input_tokens":400000},"cache_read_input_tokens":1000000,"output_tokens":100}`),
			want: price.Usage{Input: 10, Output: 100, CacheRead: 1e6, CacheWrite: 600_000, CacheWrite1h: 400_000},
			// 0.00003 + 0.0015 + 0.3 + 0.6*3.75 + 0.4*6
			dollars: "$4.95153",
		},
		"a stream says so at its beginning": {
			path: messagesPath, ask: fmt.Sprintf(messageAsk, true), events: true,
			reply: begin(`{"input_tokens":10,"cache_creation_input_tokens":1000,"cache_creation":{"ephemeral_1h_input_tokens":1000},`+
				`"cache_read_input_tokens":5,"output_tokens":1}`) +
				end(`{"input_tokens":10,"cache_creation_input_tokens":1000,"cache_read_input_tokens":5,"output_tokens":20}`),
			want: price.Usage{Input: 10, Output: 20, CacheRead: 5, CacheWrite1h: 1000},
			// 10*3 + 5*0.3 + 1000*6 + 20*15 millionths
			dollars: "$0.0063315",
		},
		"a fast one is dear": {
			path: messagesPath, ask: fmt.Sprintf(messageAsk, false),
			reply: message("claude-sonnet-4-6", `{"input_tokens":100,"output_tokens":100,"speed":"fast","service_tier":"standard"}`),
			want:  price.Usage{Input: 100, Output: 100, Tier: price.TierPriority}, dollars: "$0.0036",
		},
		"rounds of a dearer model are priced as its": {
			path: messagesPath, ask: fmt.Sprintf(messageAsk, false), reply: message("claude-sonnet-4-6",
				`{"input_tokens":100,"output_tokens":100,"iterations":[{"type":"message","model":"claude-sonnet-4-6","input_tokens":100,`+
					`"output_tokens":100},{"type":"advisor_message","model":"no-such-model","input_tokens":900,"output_tokens":0}]}`),
			// 1000 at 30 and 100 at 180
			want: price.Usage{Input: 1000, Output: 100}, dollars: "$0.048",
		},
		"cached input of gpt-4o costs half": {
			path: chatPath, ask: fmt.Sprintf(chatAsk, false),
			reply: `{"id":"c","model":"gpt-4o","choices":[],"usage":{"prompt_tokens":1000000,"completion_tokens":0,"total_tokens":1000000,` +
				`"prompt_tokens_details":{"cached_tokens":1000000,"audio_tokens":null},"completion_tokens_details":null}}`,
			want: price.Usage{CacheRead: 1e6}, dollars: "$1.25",
		},
		"details are parts of the total": {
			path: chatPath, ask: fmt.Sprintf(chatAsk, false),
			reply: `{"id":"c","model":"gpt-4o","choices":[],"service_tier":"default","usage":{"prompt_tokens":1000,"completion_tokens":50,` +
				`"prompt_tokens_details":{"cached_tokens":500,"audio_tokens":100,"image_tokens":200,"cache_write_tokens":100},` +
				`"completion_tokens_details":{"reasoning_tokens":20,"audio_tokens":10}}}`,
			want: price.Usage{Input: 100, Output: 40, CacheRead: 500, CacheWrite: 100, AudioInput: 100, ImageInput: 200, AudioOutput: 10},
			// 100*2.5 + 40*10 + 500*1.25 + 100*3.125 + 100*2.5 + 200*2.5 + 10*10 millionths
			dollars: "$0.0024375",
		},
		"of flex half is taken where it is sold": {
			path: responsesPath, ask: `{"model":"gpt-5","input":"x"}`,
			reply: `{"id":"r","status":"completed","model":"gpt-5","output":[],"service_tier":"flex","usage":{"input_tokens":1000000,"output_tokens":0}}`,
			want:  price.Usage{Input: 1e6, Tier: price.TierFlex}, dollars: "$0.625",
		},
		"embeddings": {
			path: embeddingsPath, ask: `{"model":"text-embedding-3-large","input":"some words"}`,
			reply: `{"object":"list","data":[],"model":"text-embedding-3-large","usage":{"prompt_tokens":1000000,"total_tokens":1000000}}`,
			want:  price.Usage{Input: 1e6}, dollars: "$0.13",
		},
		"a dear model behind a cheap name": {
			path: messagesPath, ask: `{"model":"claude-haiku-4-5","max_tokens":5,"messages":[]}`,
			reply: message("claude-opus-4-1", `{"input_tokens":1000000,"output_tokens":0}`), want: price.Usage{Input: 1e6}, dollars: "$15",
		},
		"and a cheap one behind a dear name": {
			path: messagesPath, ask: `{"model":"claude-opus-4-1","max_tokens":5,"messages":[]}`,
			reply: message("claude-haiku-4-5", `{"input_tokens":1000000,"output_tokens":0}`), want: price.Usage{Input: 1e6}, dollars: "$15",
		},
		"an alias of a gateway has the price of what answers": {
			path: messagesPath, ask: `{"model":"our-best","max_tokens":5,"messages":[]}`,
			reply: message("claude-sonnet-4-6", `{"input_tokens":1000000,"output_tokens":0}`), want: price.Usage{Input: 1e6}, dollars: "$3",
		},
		"huge numbers end somewhere": {
			path: messagesPath, ask: fmt.Sprintf(messageAsk, false),
			reply: message("claude-sonnet-4-6", `{"input_tokens":1e400,"output_tokens":99999999999999999999,"cache_read_input_tokens":-5}`),
			want:  price.Usage{Input: 1e12, Output: 1e12}, dollars: "$18000000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := one(t)
			if c.events {
				n.provider.events(c.reply)
			} else {
				n.provider.json(c.reply)
			}
			if got := n.call("POST", c.path, c.ask); got.status != 200 || got.body != c.reply {
				t.Fatalf("%+v", got)
			}
			cost, u, _ := n.only()
			if u != c.want || price.Dollars(cost.Nanos) != c.dollars {
				t.Errorf("%+v cost %s (%+v), and should %+v %s", u, price.Dollars(cost.Nanos), cost, c.want, c.dollars)
			}
		})
	}
}

// Where nothing is reported, or nothing that makes sense, what was sent and received is counted.
func TestWhatIsNotReportedIsEstimated(t *testing.T) {
	words := strings.Repeat("word ", 60) // 300 bytes
	cut := func(frames ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, one := range frames {
				_, _ = io.WriteString(w, one)
			}
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	plain := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}
	}
	chunk := frameOf("", `{"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{"content":"`+words+`"},"finish_reason":null}]}`)
	start := frameOf("message_start", `{"type":"message_start","message":{"id":"m","model":"claude-sonnet-4-6","content":[],`+
		`"usage":{"input_tokens":77,"output_tokens":1}}}`)
	delta := frameOf("content_block_delta",
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+words+`"}}`)
	piece := frameOf("response.output_text.delta", `{"type":"response.output_text.delta","delta":"`+words+`"}`)
	for name, c := range map[string]struct {
		path, ask          string
		answer             http.HandlerFunc
		input, least, most int64
		rules              string
	}{
		"a chat that broke off":       {chatPath, fmt.Sprintf(chatAsk, true), cut(chunk), 0, 100, 400, ""},
		"with rules for tool calls":   {chatPath, fmt.Sprintf(chatAsk, true), cut(chunk), 0, 100, 400, gateBash},
		"a message that broke off":    {messagesPath, fmt.Sprintf(messageAsk, true), cut(start, delta), 77, 100, 400, ""},
		"a response that broke off":   {responsesPath, fmt.Sprintf(responseAsk, true), cut(piece), 0, 100, 400, ""},
		"a chat without usage":        {chatPath, fmt.Sprintf(chatAsk, false), plain(`{"choices":[],"text":"` + words + `"}`), 0, 100, 120, ""},
		"a chat of zeros":             {chatPath, fmt.Sprintf(chatAsk, false), plain(`{"choices":[],"t":"` + words + `","usage":{"prompt_tokens":0,"completion_tokens":0}}`), 0, 100, 160, ""},
		"a message of less than none": {messagesPath, fmt.Sprintf(messageAsk, false), plain(`{"content":[],"t":"` + words + `","usage":{"input_tokens":-9,"output_tokens":-1e300}}`), 0, 100, 160, ""},
		"usage that is a text":        {messagesPath, fmt.Sprintf(messageAsk, false), plain(`{"content":[],"t":"` + words + `","usage":"none"}`), 0, 100, 160, ""},
		"embeddings without usage":    {embeddingsPath, `{"model":"text-embedding-3-large","input":"a"}`, plain(`{"data":[1,2,3]}`), 0, 0, 0, ""},
		"a coding that is not read": {chatPath, fmt.Sprintf(chatAsk, true), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "br")
			_, _ = io.WriteString(w, words)
		}, 0, 100, 100, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := one(t)
			n.apply(c.rules)
			n.provider.answers(c.answer)
			n.call("POST", c.path, c.ask)
			cost, u, _ := n.only()
			if c.input == 0 {
				c.input = int64(len(c.ask)+2) / 3
			}
			if !u.Estimated || u.Input != c.input || u.Output < c.least || u.Output > c.most || cost.Nanos == 0 {
				t.Errorf("%+v %+v", u, cost)
			}
		})
	}
}

func TestWhatTheProviderRefusedOrNobodySentTookNothing(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"redirected": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
	} {
		n := start(t, storetest.SQLite(t))
		n.provider.answers(answer)
		n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false))
		if cost, u, _ := n.only(); cost.Nanos != 0 || u != (price.Usage{}) {
			t.Errorf("%s: %+v %+v", name, u, cost)
		}
	}
	n := start(t, storetest.SQLite(t))
	n.provider.Close()
	n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false))
	if cost, u, status := n.only(); cost.Nanos != 0 || u != (price.Usage{}) || status != 502 {
		t.Errorf("not reached: %+v %+v %d", u, cost, status)
	}
	// Counting tokens costs nothing, and is a call all the same.
	n = start(t, storetest.SQLite(t))
	n.provider.json(`{"input_tokens":5000}`)
	n.call("POST", countPath, fmt.Sprintf(messageAsk, false))
	if cost, u, status := n.only(); cost.Nanos != 0 || u != (price.Usage{}) || status != 200 {
		t.Errorf("counted: %+v %+v %d", u, cost, status)
	}
}

// A client that goes before the usage comes is counted by what it got, and by the time that the provider worked.
func TestAClientThatGoesIsCounted(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for i, c := range formCases {
			gone := make(chan struct{})
			n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for _, piece := range c.stream("read", `{"path":"a"}`)[:4] {
					_, _ = io.WriteString(w, piece)
				}
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(gone)
			})
			r := n.request("POST", c.path, fmt.Sprintf(c.ask, true))
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = res.Body.Read(make([]byte, 1))
			_ = res.Body.Close()
			<-gone
			// And one that does not even wait for the beginning of the answer.
			n.provider.answers(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			patient := http.Client{Timeout: 200 * time.Millisecond}
			if res, err := patient.Do(n.request("POST", c.path, fmt.Sprintf(c.ask, false))); err == nil {
				_ = res.Body.Close()
				t.Error("there should be no answer")
			}
			all := n.called(2 * (i + 1))
			for _, r := range all {
				for _, one := range r.Calls {
					if !one.Estimated || one.InputTokens() == 0 || one.Nanos == 0 || one.OutputTokens() == 0 {
						t.Errorf("%s: %+v", c.name, one)
					}
				}
			}
		}
	})
}

// Three forms, streamed or not, a model that has a price or not: a budget stops calls within one of its limit.
func TestABudgetHoldsForEveryFormAndModel(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		for _, c := range formCases {
			for _, stream := range []bool{false, true} {
				for _, model := range []string{"", "nobody-knows-1"} {
					who, key := n.AgentWithKey(fmt.Sprintf("%s-%t-%s", c.name, stream, "m"+model))
					rename := strings.NewReplacer("claude-sonnet-4-6", model, "gpt-4o", model)
					if model == "" {
						rename = strings.NewReplacer()
					}
					n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
						if stream {
							w.Header().Set("Content-Type", "text/event-stream")
							body, _ := io.ReadAll(r.Body)
							for _, piece := range asOpenAI(c.stream("read", `{"path":"a"}`), body) {
								_, _ = io.WriteString(w, rename.Replace(piece))
							}
							return
						}
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, rename.Replace(strings.ReplaceAll(c.reply, "bash", "read")))
					})
					ask := rename.Replace(fmt.Sprintf(c.ask, stream))
					before := n.provider.calls()
					if got := n.call("POST", c.path, ask, "X-Api-Key", key); got.status != 200 {
						t.Fatalf("%+v", got)
					}
					var each int64
					testbed.Until(t, "the first call", func() bool {
						for _, r := range n.called(0) {
							if r.Agent == who.ID {
								each = r.Calls[0].Nanos
							}
						}
						return each > 0
					})
					// The limit is between three and four calls.
					limit := float64(each) * 3.5 / 1e9
					n.apply(fmt.Sprintf("  - {name: day, on: [prompt], when: 'recent.cost(\"24h\") >= %.12f', then: block, reason: Spent.}\n", limit))
					passed := 1
					for range 40 {
						got := n.call("POST", c.path, ask, "X-Api-Key", key)
						if got.status == 200 {
							passed++
							continue
						}
						if got.status == 403 {
							break
						}
						testbed.Until(t, "the call before to be recorded", func() bool { return len(n.of(who.ID)) == passed })
					}
					if spent := float64(n.provider.calls()-before) * float64(each) / 1e9; passed != 4 || spent > limit+float64(each)/1e9 {
						t.Errorf("%s, stream %t, model %q: %d calls passed, %f of %f", c.name, stream, model, passed, spent, limit)
					}
					n.apply("")
				}
			}
		}
		n.WantClean()
	})
}

// of are the calls of an agent that are on record.
func (n *node) of(agent string) (calls []call) {
	n.T.Helper()
	for _, r := range n.called(0) {
		if r.Agent == agent {
			calls = append(calls, r.Calls...)
		}
	}
	return calls
}

// Whatever names an agent invents for models, people get a few alarms, whose titles it does not choose.
func TestAModelWithoutAPriceIsNoticed(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.apply("  - {name: known, on: [prompt], when: 'event.unpriced && event.model == \"blocked\"', then: block, reason: No price.}\n")
		n.provider.json(`{"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":1}}`)
		if got := n.call("POST", chatPath, `{"model":"blocked","messages":[]}`); got.status != 403 {
			t.Errorf("%+v", got)
		}
		for i := range 20 {
			for range 2 {
				n.call("POST", chatPath, fmt.Sprintf(`{"model":"evil <b>%d","messages":[]}`, i))
			}
		}
		n.call("POST", chatPath, `{"model":"gpt-4o","messages":[]}`)
		n.called(41)
		var all []alarm.Alarm
		testbed.Until(t, "the alarms", func() (there bool) {
			var err error
			if all, err = n.Alarms.List(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			return len(all) >= 5
		})
		if len(all) != 5 {
			t.Errorf("%d alarms", len(all))
		}
		for _, a := range all {
			if a.Kind != "model_unpriced" || a.Agent != n.agent.ID || a.Workspace != "default" || strings.Contains(a.Title, "evil") ||
				!strings.Contains(a.Detail, "evil") {
				t.Errorf("%+v", a)
			}
		}
	})
}
