package form

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/price"
	"signalbox/internal/wire"
)

// Facts are what a reply says of itself. They may be incomplete while a stream goes on, and of a reply
// that is not what it should be.
type Facts struct {
	ID, Model string
	// Models are further models that worked on the reply, each with tokens in Usage.
	Models []string
	Usage  price.Usage
	// Reported says that Usage is what the provider says of the whole reply. Else it is as much as was said before the
	// reply broke off, perhaps nothing.
	Reported bool
	// Later says that the provider goes on in the background, so that the usage comes with the reply when it is fetched.
	Later bool
	Text  int64 // bytes of text that the model wrote, if nothing better is known of what it took
}

// take takes over what a reply reports. A report of nothing is none: some servers always write zeros.
func (f *Facts) take(u price.Usage, whole bool) {
	f.Usage = u
	f.Reported = f.Reported || whole && u.Tokens() > 0
}

// count is a number of tokens as a provider writes it, which may be anything. What is no number counts as absent.
type count int64

// UnmarshalJSON never fails: a reply must not escape its judgement because of a strange count.
func (c *count) UnmarshalJSON(text []byte) error {
	n, _ := strconv.ParseFloat(string(text), 64) // 0 for null and what is no number, and the largest for one too large
	*c = count(min(max(n, 0), mostTokens))
	return nil
}

// mostTokens is where counts end, as price.Usage.Bounded has it.
const mostTokens = 1e12

// openAIUsage is usage as OpenAI reports it, under the names of chat completions, embeddings and responses. Details are
// parts of the totals.
type openAIUsage struct {
	Prompt     count `json:"prompt_tokens"`
	Completion count `json:"completion_tokens"`
	Input      count `json:"input_tokens"`
	Output     count `json:"output_tokens"`
	Total      count `json:"total_tokens"`
	OfPrompt   kinds `json:"prompt_tokens_details"`
	OfInput    kinds `json:"input_tokens_details"`
	OfComplete kinds `json:"completion_tokens_details"`
	OfOutput   kinds `json:"output_tokens_details"`
}

// kinds are the parts of a total that may have a price of their own. What is reasoned costs what is written.
type kinds struct {
	Cached  count `json:"cached_tokens"`
	Written count `json:"cache_write_tokens"`
	Audio   count `json:"audio_tokens"`
	Image   count `json:"image_tokens"`
}

// usage takes the parts out of the totals, the dearer ones first: those that are more than their total are not
// believed. What a total has beyond both, as with servers that leave out what was reasoned, was written.
func (u *openAIUsage) usage() (out price.Usage) {
	part := func(of *int64, n count) int64 {
		n = count(min(int64(n), *of))
		*of -= int64(n)
		return int64(n)
	}
	out.Input, out.Output = int64(max(u.Prompt, u.Input)), int64(max(u.Completion, u.Output))
	out.Output += max(0, int64(u.Total)-out.Input-out.Output)
	in, made := u.OfPrompt, u.OfComplete
	if in == (kinds{}) {
		in = u.OfInput
	}
	if made == (kinds{}) {
		made = u.OfOutput
	}
	out.AudioInput, out.ImageInput = part(&out.Input, in.Audio), part(&out.Input, in.Image)
	out.CacheWrite, out.CacheRead = part(&out.Input, in.Written), part(&out.Input, in.Cached)
	out.AudioOutput, out.ImageOutput = part(&out.Output, made.Audio), part(&out.Output, made.Image)
	return out
}

// takeOpenAI takes over the member usage of a reply, or of a chunk, of OpenAI. What cannot be read is absent.
func (f *Facts) takeOpenAI(raw wire.Raw, tier string) {
	f.Usage.Tier = cmp.Or(tierOf(tier), f.Usage.Tier)
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	var u openAIUsage
	if wire.UnmarshalPart(raw, &u) != nil {
		return
	}
	now := u.usage()
	now.Tier = f.Usage.Tier
	if now.Tokens() >= f.Usage.Tokens() { // totals so far, of servers that repeat them, do not fall
		f.take(now, true)
	}
}

// tierOf is the tier of service that changes the price, "" for the ordinary one. An unknown one is kept, and priced as
// dear. "scale" is paid for before.
func tierOf(name string) string {
	switch name = strings.ToLower(name); name {
	case "", "default", "auto", "standard", "standard_only", "on_demand", "scale":
		return ""
	case "fast":
		return price.TierPriority
	}
	if len(name) > 32 || strings.ContainsFunc(name, func(r rune) bool { return r < '-' || r > 'z' }) {
		return price.TierPriority // not a name to be stored, and as dear
	}
	return name
}

// messageUsage is usage as Anthropic reports it. Events of a stream repeat some of the numbers.
type messageUsage struct {
	Input      count  `json:"input_tokens"`
	Output     count  `json:"output_tokens"`
	CacheRead  count  `json:"cache_read_input_tokens"`
	CacheWrite count  `json:"cache_creation_input_tokens"`
	Tier       string `json:"service_tier"`
	Speed      string `json:"speed"`
	Written    struct {
		Minutes count `json:"ephemeral_5m_input_tokens"`
		Hour    count `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Iterations []struct {
		Model string `json:"model"`
		messageUsage
	} `json:"iterations"`
}

// readMessageUsage reads the member usage of a message or of an event, nil if there is none that can be read.
func readMessageUsage(raw wire.Raw) *messageUsage {
	var u messageUsage
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	if u.light(raw) {
		return &u
	}
	u = messageUsage{}
	if wire.UnmarshalPart(raw, &u) != nil {
		return nil
	}
	return &u
}

// light reads usage without iterations; see light.go.
func (u *messageUsage) light(text []byte) bool {
	read := func(name, value []byte) bool {
		var n *count
		switch string(name) {
		case "input_tokens":
			n = &u.Input
		case "output_tokens":
			n = &u.Output
		case "cache_read_input_tokens":
			n = &u.CacheRead
		case "cache_creation_input_tokens":
			n = &u.CacheWrite
		case "service_tier":
			return IsText(value, &u.Tier)
		case "speed":
			return IsText(value, &u.Speed)
		case "cache_creation":
			return EachMember(value, u.lightWritten)
		default:
			return string(name) != "iterations"
		}
		return n.UnmarshalJSON(value) == nil
	}
	return EachMember(text, read) && wire.Strict(text)
}

// lightWritten reads a member of cache_creation.
func (u *messageUsage) lightWritten(name, value []byte) bool {
	switch string(name) {
	case "ephemeral_5m_input_tokens":
		return u.Written.Minutes.UnmarshalJSON(value) == nil
	case "ephemeral_1h_input_tokens":
		return u.Written.Hour.UnmarshalJSON(value) == nil
	}
	return true
}

// usage is the usage without iterations. Of what was written to a cache, the part for an hour is dearer; the rest of
// the total was written for minutes.
func (u *messageUsage) usage() price.Usage {
	written := max(u.CacheWrite, u.Written.Minutes+u.Written.Hour)
	return price.Usage{
		Input: int64(u.Input), Output: int64(u.Output), CacheRead: int64(u.CacheRead),
		CacheWrite: int64(written - u.Written.Hour), CacheWrite1h: int64(u.Written.Hour),
	}
}

// takeMessage takes over usage of Anthropic. Numbers of a stream are sums so far: they replace those before them, and
// do not fall. A delta does not repeat how long a cache keeps what was written, so the split of the beginning stays.
// Iterations may or may not be in the totals, so the larger counts.
func (f *Facts) takeMessage(u *messageUsage, whole bool) {
	if u == nil {
		return
	}
	now, rounds := u.usage(), price.Usage{}
	for i := range u.Iterations {
		one := &u.Iterations[i]
		rounds.Add(one.usage())
		if one.Model != "" && one.Model != f.Model && len(f.Models) < maxModels && !slices.Contains(f.Models, one.Model) {
			f.Models = append(f.Models, one.Model)
		}
	}
	was := f.Usage
	now.Input, now.Output = max(now.Input, rounds.Input, was.Input), max(now.Output, rounds.Output, was.Output)
	now.CacheRead = max(now.CacheRead, rounds.CacheRead, was.CacheRead)
	now.CacheWrite1h = max(now.CacheWrite1h, rounds.CacheWrite1h, was.CacheWrite1h)
	now.CacheWrite = max(now.CacheWrite+u.hour(), rounds.CacheWrite+rounds.CacheWrite1h,
		was.CacheWrite+was.CacheWrite1h) - now.CacheWrite1h
	if now.Tier = cmp.Or(tierOf(u.Tier), was.Tier); tierOf(u.Speed) != "" {
		now.Tier = tierOf(u.Speed)
	}
	f.take(now.Bounded(), whole)
}

// hour is how much was written to a cache for an hour.
func (u *messageUsage) hour() int64 { return int64(u.Written.Hour) }

// maxModels is how many further models of a reply are looked at. A reply has one or two.
const maxModels = 16

// Embedded reads the facts of embeddings, which are no form: there is nothing to judge in them.
func Embedded(body []byte) (about Facts) {
	var r struct {
		Model string   `json:"model"`
		Usage wire.Raw `json:"usage"`
	}
	if wire.UnmarshalPart(body, &r) == nil {
		about.Model = r.Model
		about.takeOpenAI(r.Usage, "")
	}
	return about
}

// written are the members whose text a model has written, in any form: of messages, of deltas and of calls.
var written = map[string]bool{
	"text": true, "thinking": true, "partial_json": true, "content": true, "arguments": true, "delta": true,
	"refusal": true, "reasoning": true, "reasoning_content": true, "input": true, "transcript": true, "b64_json": true,
}

// textIn is how many bytes of text a model has written in a reply or in an event of a stream, at any depth. It looks at
// quotes alone, since it is wanted of every event and used of those few replies that report no usage.
func textIn(data []byte) (n int64) {
	var name []byte
	for at := 0; ; {
		i := bytes.IndexByte(data[at:], '"')
		if i < 0 {
			return n
		}
		begin := at + i + 1
		end := skipString(data, begin)
		if end < 0 {
			return n
		}
		value := data[begin : end-1]
		after := skipSpace(data, end)
		switch {
		case after < len(data) && data[after] == ':':
			name = value
			// Only a text counts: what is inside of an object has names of its own.
			if next := skipSpace(data, after+1); next < len(data) && data[next] != '"' {
				name = nil
			}
		case name != nil && written[string(name)]:
			n += int64(len(value))
			name = nil
		default:
			name = nil
		}
		at = end
	}
}

// AskForUsage adds stream_options.include_usage to a chat completion that is streamed, and changes no other byte. added
// is false, and the request as it was, if it is not streamed, if the client has asked for it itself, and if it cannot
// be told what a provider would read: it then says so itself, or the usage is estimated.
func AskForUsage(body []byte) (asked []byte, added bool) {
	streams, options := 0, 0
	var edits []edit
	whole := eachMember(body, func(name, _, value []byte) bool {
		switch memberName(name) {
		case "stream":
			streams++
			return string(value) == "true"
		case "stream_options":
			options++
			edits = append(edits, askIn(body, value)...)
		}
		return true
	})
	if !whole || streams != 1 || options > 0 && len(edits) == 0 {
		return body, false
	}
	if options == 0 {
		end := bytes.LastIndexByte(body, '}')
		edits = []edit{{end, end, `,"stream_options":{"include_usage":true}`}}
	}
	out := make([]byte, 0, len(body)+len(edits)*48)
	at := 0
	for _, e := range edits {
		out = append(append(out, body[at:e.from]...), e.text...)
		at = e.to
	}
	return append(out, body[at:]...), true
}

// edit replaces the bytes of a text from one place to another.
type edit struct {
	from, to int
	text     string
}

// askIn is what has to be edited in the value of stream_options so that it asks for usage.
func askIn(body, options []byte) (edits []edit) {
	at := offset(body, options)
	if string(options) == "null" {
		return []edit{{at, at + len(options), `{"include_usage":true}`}}
	}
	there, members := false, ""
	if !eachMember(options, func(name, _, value []byte) bool {
		members = ","
		if memberName(name) == "include_usage" {
			there = true
			if text := string(value); text == "false" || text == "null" { // what is neither the provider refuses
				from := offset(body, value)
				edits = append(edits, edit{from, from + len(value), "true"})
			}
		}
		return true
	}) {
		return nil
	}
	if there {
		return edits
	}
	// At the end, for servers that take the last of members whose names differ in letters alone.
	at += bytes.LastIndexByte(options, '}')
	return []edit{{at, at, members + `"include_usage":true`}}
}

// offset is where a part begins in the text that it was cut from.
func offset(text, part []byte) int { return cap(text) - cap(part) }

// memberName is a name as it is meant.
func memberName(written []byte) string {
	if bytes.IndexByte(written, '\\') < 0 {
		return string(written)
	}
	name, _ := wire.Text(slices.Concat([]byte{'"'}, written, []byte{'"'}))
	return name
}

// WithoutUsage is a frame of a chat completion as it would have come if nobody had asked for usage: nothing if it is
// the chunk that has it, and otherwise without the member usage that is null for that reason alone.
func (f Frame) WithoutUsage() []byte {
	if !bytes.Contains(f.Data, []byte(`"usage"`)) {
		return f.Raw
	}
	type piece struct{ from, to int }
	var members []piece
	cut, nulls := 0, 0 // the member that is usage and null, and how many there are
	reported, choices := false, false
	whole := eachMember(f.Data, func(name, member, value []byte) bool {
		from := offset(f.Data, member)
		switch memberName(name) {
		case "usage":
			if string(value) == "null" {
				cut, nulls = len(members), nulls+1
			} else {
				reported = value[0] == '{'
			}
		case "choices":
			choices = !isEmpty(value)
		}
		members = append(members, piece{from, from + len(member)})
		return true
	})
	if whole && reported && !choices {
		return nil
	}
	at := bytes.LastIndex(f.Raw, f.Data) // not found in data of several lines, which nobody sends
	if !whole || nulls != 1 || at < 0 {
		return f.Raw
	}
	from, to := members[cut].from, members[cut].to
	switch {
	case cut > 0: // with the comma before it
		from = members[cut-1].to
	case len(members) > 1: // and what comes after it
		to = members[1].from
	}
	return slices.Delete(slices.Clone(f.Raw), at+from, at+to)
}

// isEmpty reports whether a value is an empty list, or null.
func isEmpty(value []byte) bool {
	if string(value) == "null" {
		return true
	}
	return value[0] == '[' && skipSpace(value, 1) == len(value)-1
}
