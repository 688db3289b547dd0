package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/price"
	"signalbox/internal/store/storetest"
)

// counting is a provider that counts what it says each call took: other numbers for every call, with tokens from a
// cache, and for Anthropic written to one for five minutes and for an hour.
type counting struct {
	mu    sync.Mutex
	calls int
	by    map[string]*price.Usage // by model
}

// answer answers in the form that is asked, whole or as a stream.
func (c *counting) answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.calls++
	n := int64(c.calls)
	form, model := formCases[0], "claude-sonnet-4-6"
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		form, model = formCases[1], "gpt-4o"
	case strings.HasSuffix(r.URL.Path, "/responses"):
		form, model = formCases[2], "gpt-4o"
	}
	u := price.Usage{Input: 1000 + 7*n, Output: 100 + 3*n, CacheRead: 500 + 11*n}
	details := fmt.Sprintf(`_tokens_details":{"cached_tokens":%d}`, u.CacheRead)
	all := strconv.FormatInt(u.Input+u.CacheRead, 10)
	rename := strings.NewReplacer(
		`"prompt_tokens":100`, `"prompt_tokens":`+all, `"completion_tokens":40}`, `"completion_tokens":`+strconv.FormatInt(u.Output, 10)+`,"prompt`+details+`}`,
		`"completion_tokens":40,`, `"completion_tokens":`+strconv.FormatInt(u.Output, 10)+`,`, `"total_tokens":140,`, "", `"cached_tokens":60`,
		fmt.Sprintf(`"cached_tokens":%d`, u.CacheRead), `"output_tokens":40}`, `"output_tokens":`+strconv.FormatInt(u.Output, 10)+`,"input`+details+`}`,
		`"output_tokens":40,`, `"output_tokens":`+strconv.FormatInt(u.Output, 10)+`,`, `"input_tokens":100`, `"input_tokens":`+all,
	)
	if model == "claude-sonnet-4-6" {
		u.CacheWrite, u.CacheWrite1h = 10+n, 20+n
		rename = strings.NewReplacer(`"input_tokens":100`, fmt.Sprintf(`"input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,`+
			`"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d}`, u.Input, u.CacheRead, u.CacheWrite+u.CacheWrite1h,
			u.CacheWrite, u.CacheWrite1h), `"output_tokens":40`, fmt.Sprintf(`"output_tokens":%d`, u.Output))
	}
	if c.by[model] == nil {
		c.by[model] = &price.Usage{}
	}
	c.by[model].Add(u)
	c.mu.Unlock()
	if strings.Contains(r.Header.Get("X-Scenario"), "stream") {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range asOpenAI(form.stream("read", `{"path":"a"}`), body) {
			_, _ = io.WriteString(w, rename.Replace(piece))
			_ = http.NewResponseController(w).Flush()
		}
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, rename.Replace(strings.ReplaceAll(form.reply, "bash", "read")))
}

// What is on record of the calls of the real SDKs is what the provider counted, token for token, and costs what the
// providers' lists say, worked out by hand: dollars for a million tokens.
func TestTheCallsOfTheRealSDKsAreCountedToTheToken(t *testing.T) {
	t.Parallel()
	programs := sdkPrograms(t)
	n := start(t, storetest.SQLite(t))
	c := &counting{by: map[string]*price.Usage{}}
	n.apply(gateBash)
	n.provider.answers(c.answer)
	keys, _ := json.Marshal(map[string]string{"plain": n.key})
	for sdk, all := range runSDKs(t, programs, n.web.URL, n.web.URL, string(keys), "pass") {
		for _, s := range all {
			if s.Error != "" || len(s.Tools) != 1 {
				t.Errorf("%s: %+v", sdk, s)
			}
		}
		if len(all) < 2 {
			t.Errorf("%s has made %d calls", sdk, len(all))
		}
	}
	n.called(c.calls)
	recorded, cost := map[string]*price.Usage{}, map[string]int64{}
	for _, one := range n.of(n.agent.ID) {
		if recorded[one.Model] == nil {
			recorded[one.Model] = &price.Usage{}
		}
		recorded[one.Model].Add(one.Usage)
		cost[one.Model] += one.Nanos
	}
	byHand := map[string]func(u *price.Usage) float64{
		"claude-sonnet-4-6": func(u *price.Usage) float64 {
			return float64(u.Input)*3 + float64(u.Output)*15 + float64(u.CacheRead)*0.30 + float64(u.CacheWrite)*3.75 + float64(u.CacheWrite1h)*6
		},
		"gpt-4o": func(u *price.Usage) float64 {
			return float64(u.Input)*2.5 + float64(u.Output)*10 + float64(u.CacheRead)*1.25
		},
	}
	for model, counted := range c.by {
		got := recorded[model]
		if got == nil || *got != *counted {
			t.Errorf("%s: %+v is on record, and the provider counted %+v", model, got, counted)
			continue
		}
		want := byHand[model](counted) * 1000
		if off := math.Abs(float64(cost[model])-want) / want; off > 0.01 {
			t.Errorf("%s: %d nanos, and by hand %f", model, cost[model], want)
		}
	}
	t.Logf("%d calls of %d SDKs: %v, %v nanos", c.calls, len(programs), recorded, cost)
}
