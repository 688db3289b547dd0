package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// exchange is one call of a client, from its request to the last byte of the answer. handle makes
// it, and it ends when handle returns. All of it belongs to the goroutine of the handler, except
// out, which a timer writes to as well.
type exchange struct {
	endpoint
	caller
	p        *Proxy
	w        http.ResponseWriter
	r        *http.Request
	control  *http.ResponseController
	header   http.Header // the client's, cleaned, for the provider
	q        request
	fp       string // the fingerprint, by which the same call is recognised (PRX-38)
	project  string
	run      string
	named    behalf.Named // on whose behalf, as the headers claim
	of       behalf.Of    // and as it is
	async    bool
	asked    []byte     // the request, if the model is told of a rejection (tellModel)
	told     int        // how often it was
	sent     bool       // the request has gone to the provider
	past     string     // the gate that a new one may replace: spent, or used to send the request
	using    *gate.Gate // the gate of which a use was taken to send the request; nil for none
	set      Settings
	rules    *rules
	out      *output
	detach   func() bool // lets the provider's reply outlive the client (PRX-28); once only
	began    time.Time
	beside   []allowed    // the calls of the reply that are allowed, for the gate of the others
	record   meter.Called // what will be recorded of the call
	due      *meter.Due   // what a batch may cost
	bytes    int64        // of the request that was sent
	sentAt   time.Time    // when it was
	strip    bool         // we have asked for the usage of a stream, and the client has not
	free     bool         // the provider took nothing: it was not reached, or refused
	broke    bool         // the reply broke off, or nobody waited for it
	received int64        // bytes of a reply that is passed on unread
	prefix   string       // the part of the path that is ours, with the agent's key if it is there
}

const (
	// largeBody is how many bytes are read in one piece, into memory that is allocated at once. A
	// client that announces more gets memory as it sends.
	largeBody = 1 << 20
	bodyTime  = 10 * time.Minute // for a request of 500 MB
)

// projectForm is the form of a deck's name, as signals have it in project_id.
var projectForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// carry does everything that a call needs, in an order that matters: the endpoint and the agent
// are known before anything is read, the agent's limit is counted before it costs anything, and
// a call is refused while the ledger cannot follow (PRX-47). An error it returns has not been
// answered yet.
func (x *exchange) carry() error {
	inPath, known := x.locate()
	if !known {
		return fault.New(fault.NotFound,
			"The proxy does not carry %s %.200q. It has messages, batches, models, files and skills of Anthropic, and chat "+
				"completions, responses, batches, models, embeddings, moderations and files of OpenAI.", x.r.Method, x.path)
	}
	select {
	case <-x.p.loaded: // a server that has just started would not know keys and approvals
	case <-x.r.Context().Done():
		return errGone
	}
	var err error
	if x.caller, err = x.p.identify(x.r.Context(), x.header, x.provider, inPath); err != nil {
		return err
	}
	if _, err := x.p.core.Roster.Take(x.who, "requests", 0); err != nil {
		return err
	}
	if err := x.p.meter.CheckRoom(); err != nil {
		return err
	}
	x.set = x.p.settingsOf(x.who.ID)
	x.project, x.run = x.r.Header.Get("X-Amp-Project"), x.r.Header.Get("X-Amp-Run")
	x.named = behalf.Header(x.r.Header)
	if x.who, err = rulebook.Admit(x.r.Context(), x.p.core.Roster, x.who, x.named); err != nil {
		return err
	}
	if x.project != "" && (len(x.project) > 63 || !projectForm.MatchString(x.project)) || len(x.run) > 128 {
		return fault.New(fault.InvalidRequest,
			"X-Amp-Project should be lower-case letters and digits with single hyphens, 63 at "+
				"most, and X-Amp-Run at most 128 characters.")
	}
	// Read before cleanHeader removes Prefer, which is not for the provider.
	x.async = x.set.Mode == ModeAsync || wire.Prefers(x.r, "respond-async")
	x.cleanHeader()
	if x.r.ContentLength > x.most {
		return x.tooLarge()
	}
	// The server's own read deadline is for small requests.
	if x.r.ContentLength < 0 || x.r.ContentLength > largeBody {
		_ = x.control.SetReadDeadline(x.began.Add(bodyTime))
	}
	found, under, err := x.p.core.Book.Behalf(x.r.Context(), x.who, x.named.Claim, x.named.User)
	if err != nil {
		return err
	}
	x.of, x.rules = rulebook.Of(found, under), x.p.rules(x.who, found, under)
	if under.Refused { // also for calls about which no rule is asked
		return x.refuseCall(x.decideOne(&request{kind: x.kind, provider: x.provider}))
	}
	// What no rule looks at is not read into memory: files, results of batches, and batches if no rule is on prompts.
	if x.form == nil && (x.kind == "" || x.passesBatch()) {
		return x.passThrough()
	}
	return x.carryJudged()
}

// tooLarge is the error of a request over the endpoint's limit (PRX-3).
func (x *exchange) tooLarge() error {
	return fault.New(fault.TooLarge, "The request is larger than %d bytes, which is the most that this call takes.",
		x.most)
}

// locate finds the endpoint, and the agent's key in the path, "" if there is none. The path is used
// as it was escaped, since that is how the provider has to get it.
func (x *exchange) locate() (inPath string, known bool) {
	const base = "/v1/proxy"
	x.prefix = base
	rest := strings.TrimPrefix(x.r.URL.EscapedPath(), base)
	if after, ok := strings.CutPrefix(rest, "/a/"); ok {
		inPath, rest, _ = strings.Cut(after, "/")
		x.prefix += "/a/" + inPath
		rest = "/" + rest
	}
	provider := Anthropic
	if after, ok := strings.CutPrefix(rest, "/openai/"); ok {
		provider, rest = OpenAI, "/"+after
		x.prefix += "/openai"
	}
	x.endpoint, known = findEndpoint(provider, x.r.Method, rest)
	return inPath, known
}

// hopByHop are the headers that are for one connection only (RFC 9110, 7.6.1).
var hopByHop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// cleanHeader removes from the header what is not for the provider (PRX-9). identify has replaced
// the key before.
func (x *exchange) cleanHeader() {
	dropHops(x.header)
	for name := range x.header {
		if strings.HasPrefix(name, "X-Amp-") {
			x.header.Del(name)
		}
	}
	x.header.Del("Prefer") // ours to honour
	if _, there := x.header["User-Agent"]; !there {
		x.header["User-Agent"] = nil // else the transport adds Go's own
	}
}

// dropHops removes the headers that are for one connection only, and those that Connection names.
func dropHops(h http.Header) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		delete(h, name)
	}
}

// carryJudged carries a call whose request or reply the policy judges. The whole request is in
// memory until it is sent. A request that cannot be read is refused only if some rule looks at
// requests; else the provider says what is wrong with it.
func (x *exchange) carryJudged() error {
	if encoding := x.r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fault.New(fault.UnsupportedMedia,
			"The request is encoded as %.40q. Rules look at what is asked, so send it as it is.", encoding)
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	x.q = request{form: x.form, kind: x.kind, provider: x.provider, body: body}
	if x.kind != "" {
		if err := x.q.read(x.rules.messages); err != nil && x.rules.prompt {
			return fault.Wrap(err, fault.InvalidPayload, "The request cannot be read: %s", fault.From(err).Message)
		}
	} else {
		// A reply that the provider has stored is asked for as a stream with a parameter.
		x.q.stream = x.r.URL.Query().Get("stream") == "true"
	}
	x.fp = x.fingerprint(body)
	if x.set.Feedback {
		x.asked = body
	}
	x.p.takeResults(x)
	return x.answerCall()
}

// readBody reads the body of the request, in one piece if its length is known and not large.
func (x *exchange) readBody() ([]byte, error) {
	n := x.r.ContentLength
	if n < 0 || n > largeBody {
		return wire.Read(x.w, x.r, x.most)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(x.r.Body, body); err != nil {
		return nil, fault.Wrap(err, fault.InvalidPayload, "The body ended before it was complete. Send it again.")
	}
	if n > 0 {
		_ = x.control.SetReadDeadline(time.Time{}) // answering may take longer
	}
	return body, nil
}

// fingerprint identifies a call: SHA-256 of agent, key, method, provider, path, query, body and
// user (PRX-38). SDKs send a call again by themselves, with the same bytes; headers differ between
// attempts and are left out. The key is part of it so that rotating a key ends old approvals.
func (x *exchange) fingerprint(body []byte) string {
	h := sha256.New()
	of := make([]byte, 0, 256)
	for _, part := range [...]string{
		x.who.ID, "\x00", x.who.KeyID, "\x00", x.r.Method, "\x00", x.provider, x.path, "?", x.r.URL.RawQuery, "\x00",
	} {
		of = append(of, part...)
	}
	h.Write(of)
	h.Write(body)
	h.Write(gate.ForUser(x.named))
	sum := h.Sum(of[:0])
	return string(hex.AppendEncode(sum, sum)[len(sum):])
}

// trace is the ledger's trace: that of the run if the client names one, else of the call alone.
func (x *exchange) trace() string {
	if x.run != "" {
		return "run:" + x.who.ID + ":" + x.run
	}
	return "call:" + x.fp
}

// reference names the call in the gate's origin and as run_id in the webhook.
func (x *exchange) reference() string {
	if x.run != "" {
		return x.run
	}
	return "call-" + x.fp[:32]
}
