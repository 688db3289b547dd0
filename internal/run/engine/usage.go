package engine

import "maps"

// Usage is what a run has used so far in total, in one shape for every engine. It grows
// with the run.
type Usage struct {
	Tokens Tokens `json:"tokens"` // of the run itself, as far as the CLI tells them apart from those of its session
	// Models are the tokens by model, for a run that used several. What they leave of Tokens is of Model.
	Models     map[string]Tokens `json:"models,omitempty"`
	CostUSD    *float64          `json:"cost_usd"` // of the run itself; nil when nobody said
	DurationMS int64             `json:"duration_ms,omitempty"`
	Turns      int64             `json:"turns,omitempty"`
	Calls      int64             `json:"calls,omitempty"` // of models, as far as they can be told
	Model      string            `json:"model,omitempty"`
	// Source tells Apart how to read the tokens.
	Source string `json:"source"` // the engine that counted
	// Session is what the CLI says of the whole session, of which this run may be one of many (RUN-47). It is counted by
	// difference to what earlier runs of the session reported.
	Session *Total `json:"session,omitempty"`
}

// Total is what a CLI says that a session has used, from its beginning.
type Total struct {
	Tokens  Tokens            `json:"tokens"`
	Models  map[string]Tokens `json:"models,omitempty"` // as in Usage
	CostUSD *float64          `json:"cost_usd,omitempty"`
}

// Tokens are counts of tokens, as the engine counts them. Engines count differently:
// see Usage.Apart.
type Tokens struct {
	Input        int64 `json:"input"`
	Output       int64 `json:"output"`
	CacheRead    int64 `json:"cache_read"`
	CacheWrite   int64 `json:"cache_write"`
	CacheWrite1h int64 `json:"cache_write_1h,omitzero"` // part of CacheWrite: what is kept for an hour, and costs more
	Reasoning    int64 `json:"reasoning"`               // part of Output, but for opencode
}

// counts are the single counts.
func (t *Tokens) counts() [6]*int64 {
	return [6]*int64{&t.Input, &t.Output, &t.CacheRead, &t.CacheWrite, &t.CacheWrite1h, &t.Reasoning}
}

// mostTokens keeps sums of what a CLI may write within an int64.
const mostTokens = 1e15

// add adds other counts, or with -1 takes them away. No count falls below 0 or goes past mostTokens.
func (t *Tokens) add(other Tokens, times int64) {
	from := other.Bounded(mostTokens)
	for i, n := range t.counts() {
		*n = min(max(*n+times**from.counts()[i], 0), mostTokens)
	}
}

// raise makes each count at least that of the other.
func (t *Tokens) raise(other Tokens) {
	from := other.counts()
	for i, n := range t.counts() {
		*n = max(*n, *from[i])
	}
}

// Bounded is the tokens with each count from 0 to most.
func (t Tokens) Bounded(most int64) Tokens {
	for _, n := range t.counts() {
		*n = min(max(*n, 0), most)
	}
	t.CacheWrite1h = min(t.CacheWrite1h, t.CacheWrite)
	return t
}

// Apart are tokens of an engine with each counted once (RUN-29): codex and gemini count tokens
// from and to a cache as input too, and opencode those of reasoning apart from the output, though they are paid like it.
func (t Tokens) Apart(source string) Tokens {
	switch source {
	case "codex", "gemini":
		t.Input = max(0, t.Input-t.CacheRead-t.CacheWrite)
	case "opencode":
		t.Output += t.Reasoning
	}
	return t
}

// Apart are the tokens with each counted once.
func (u Usage) Apart() Tokens { return u.Tokens.Apart(u.Source) }

// Budgeted is how many tokens a budget counts. Reasoning tokens are part of the output.
func (u Usage) Budgeted() int64 {
	t := u.Apart()
	return t.Input + t.Output + t.CacheRead + t.CacheWrite
}

// report is the usage as an event has it, nil if nothing was counted and no cost is
// known. Where the CLI tells only of the session, so does the event.
func (u Usage) report(counted bool) *Report {
	cost, t := u.CostUSD, u.Tokens
	if u.Session != nil && cost == nil {
		cost = u.Session.CostUSD
	}
	if u.Session != nil && t == (Tokens{}) {
		t = u.Session.Tokens
	}
	if !counted && cost == nil {
		return nil
	}
	r := &Report{CostUSD: cost}
	if !counted {
		return r
	}
	r.Tokens = &ReportedTokens{Input: t.Input, Output: t.Output}
	if t.CacheRead != 0 || t.CacheWrite != 0 {
		r.Tokens.CacheWrite, r.Tokens.CacheRead = &t.CacheWrite, &t.CacheRead
	}
	if t.Reasoning != 0 {
		r.Tokens.Reasoning = &t.Reasoning
	}
	return r
}

// addTokens adds tokens of a model to the total, "" for the model of the run.
func (s *Stream) addTokens(model string, t Tokens) {
	s.counted = true
	s.usage.Tokens.add(t, 1)
	if s.models == nil {
		s.models = map[string]Tokens{}
	}
	sum := s.models[model]
	sum.add(t, 1)
	s.models[model] = sum
}

// setTokens takes the tokens of the whole run by model, in place of what was added up.
func (s *Stream) setTokens(models map[string]Tokens) {
	s.counted, s.models, s.usage.Tokens = true, models, Tokens{}
	for _, t := range models {
		s.usage.Tokens.add(t, 1)
	}
}

// Usage is what the run has used so far. It shares nothing with the stream.
func (s *Stream) Usage() Usage {
	u := s.usage
	_, own := s.models[u.Model]
	_, unnamed := s.models[""]
	if len(s.models) > 1 || len(s.models) == 1 && !own && !unnamed {
		u.Models = maps.Clone(s.models)
		delete(u.Models, "") // which is what the others leave
	}
	return u
}
