package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/proxy/form"
	"signalbox/internal/wire"
)

// Routes are the proxy itself, and what operators set.
func (p *Proxy) Routes() []wire.Route {
	inWorkspace := []wire.Param{{Name: "workspace", Meaning: "the workspace of the agent; default when absent"}}
	var routes []wire.Route
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		routes = append(routes, wire.Route{
			Method: method, Path: "/v1/proxy/{path...}", Summary: "The model proxy: what Anthropic has below its address, and below openai/ what OpenAI has",
			Media: "application/json", Lenient: true, Handle: p.handle,
		})
	}
	return append(routes,
		wire.Route{Method: "GET", Path: "/ops/proxy/keys", Summary: "The providers' keys in the vault, without the keys", Auth: wire.Admin, Answer: ProviderKeys{}, Handle: p.getKeys},
		wire.Route{Method: "PUT", Path: "/ops/proxy/keys/{provider}", Summary: "Put a provider's key into the vault", Auth: wire.Admin, Request: NewProviderKey{}, Answer: ProviderKeys{}, Handle: p.putKey},
		wire.Route{Method: "DELETE", Path: "/ops/proxy/keys/{provider}", Summary: "Take a provider's key out of the vault", Auth: wire.Admin, Query: []wire.Param{{Name: "workspace", Meaning: "whose key; that of all when absent"}}, Answer: ProviderKeys{}, Handle: p.deleteKey},
		wire.Route{Method: "GET", Path: "/ops/agents/{name}/proxy", Summary: "How an agent's calls through the proxy are treated", Auth: wire.Viewer, Query: inWorkspace, Answer: Settings{}, Handle: p.getSettings},
		wire.Route{Method: "PUT", Path: "/ops/agents/{name}/proxy", Summary: "Set how an agent's calls through the proxy are treated", Auth: wire.Operator, Query: inWorkspace, Request: NewSettings{}, Answer: Settings{}, Handle: p.putSettings},
	)
}

// exchange is one call on its way.
type exchange struct {
	endpoint
	caller
	p       *Proxy
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	header  http.Header // for the provider
	q       request
	fp      string
	project string
	run     string
	async   bool
	sent    bool   // the request has gone to the provider
	past    string // a gate that stands for this call no more
	set     Settings
	rules   *rules
	out     *output
	detach  func() bool // lets the provider's reply outlive the client
	began   time.Time
	note    called
	prefix  string // of the path, as far as it is ours
}

const (
	largeBody = 1 << 20
	bodyTime  = 10 * time.Minute // for a request of 500 MB
)

// handle carries a call. Every answer of ours has the provider's form.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) error {
	x := &exchange{p: p, w: w, r: r, control: http.NewResponseController(w), header: r.Header.Clone(), began: time.Now()}
	x.out = &output{x: x, deadline: x.began.Add(writeTime)} // as the server has set it
	defer x.recover()
	if err := x.carry(); err != nil {
		x.fail(failureOf(err))
	}
	return nil
}

// recover ends a call that panicked. The path is not logged, since it may hold a key.
func (x *exchange) recover() {
	cause := recover()
	if cause == nil {
		return
	}
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(cause)
	}
	x.p.core.Log.Error("carrying a call panicked", "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
	x.fail(failure{status: http.StatusInternalServerError, kind: "api_error", message: "Something went wrong inside Signalbox. The server's log has the cause."})
}

var projectForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// carry does all of a call.
func (x *exchange) carry() error {
	inPath, known := x.locate()
	if !known {
		return fault.New(fault.NotFound, "The proxy does not carry %s %.200q. It has messages, batches, models, files and skills of Anthropic, and chat completions, responses, models, embeddings, moderations and files of OpenAI.", x.r.Method, x.path)
	}
	var err error
	if x.caller, err = x.p.identify(x.r.Context(), x.header, x.provider, inPath); err != nil {
		return err
	}
	if _, err := x.p.core.Roster.Take(x.who, "requests", 0); err != nil {
		return err
	}
	if err := x.p.recorder.ready(); err != nil {
		return err
	}
	x.set = x.p.of(x.who.ID)
	x.project, x.run = x.r.Header.Get("X-Amp-Project"), x.r.Header.Get("X-Amp-Run")
	if x.project != "" && (len(x.project) > 63 || !projectForm.MatchString(x.project)) || len(x.run) > 128 {
		return fault.New(fault.InvalidRequest, "X-Amp-Project should be lower-case letters and digits with single hyphens, 63 at most, and X-Amp-Run at most 128 characters.")
	}
	x.async = x.set.Mode == ModeAsync || slices.ContainsFunc(x.r.Header.Values("Prefer"), func(v string) bool { return strings.Contains(strings.ToLower(v), "respond-async") })
	x.clean()
	if x.r.ContentLength > x.most {
		return x.tooLarge()
	}
	if x.r.ContentLength < 0 || x.r.ContentLength > largeBody {
		_ = x.control.SetReadDeadline(x.began.Add(bodyTime))
	}
	x.rules = x.p.rules()
	if x.form == nil && (x.kind == "" || !x.rules.prompt) {
		return x.pass()
	}
	return x.judged()
}

func (x *exchange) tooLarge() error {
	return fault.New(fault.TooLarge, "The request is larger than %d bytes, which is the most that this call takes.", x.most)
}

// locate finds out which call it is, and the agent's key in its path.
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
	x.endpoint, known = find(provider, x.r.Method, rest)
	return inPath, known
}

// hopByHop are the headers of one connection.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// clean takes out of the header what is not for the provider.
func (x *exchange) clean() {
	dropHops(x.header)
	for name := range x.header {
		if strings.HasPrefix(name, "X-Amp-") {
			x.header.Del(name)
		}
	}
	x.header.Del("Prefer") // ours to honour
	if _, there := x.header["User-Agent"]; !there {
		x.header["User-Agent"] = nil // and not Go's own
	}
}

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

// judged carries a call whose request or reply meets the policy.
func (x *exchange) judged() error {
	if encoding := x.r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fault.New(fault.UnsupportedMedia, "The request is encoded as %.40q. Rules look at what is asked, so send it as it is.", encoding)
	}
	body, err := x.read()
	if err != nil {
		return err
	}
	x.q = request{form: x.form, kind: x.kind, provider: x.provider, body: body}
	if x.kind != "" {
		if err := x.q.read(x.rules.said); err != nil && x.rules.prompt {
			return fault.Wrap(err, fault.InvalidPayload, "The request cannot be read: %s", fault.From(err).Message)
		}
	} else {
		x.q.stream = x.r.URL.Query().Get("stream") == "true"
	}
	x.fp = x.fingerprint(body)
	x.p.receive(x)
	return x.first()
}

// read reads the request, at once where it says how long it is.
func (x *exchange) read() ([]byte, error) {
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

// fingerprint knows a call again: the same key asks for the same.
func (x *exchange) fingerprint(body []byte) string {
	h := sha256.New()
	_, _ = io.WriteString(h, x.who.ID+"\x00"+x.who.KeyID+"\x00"+x.r.Method+"\x00"+x.provider+x.path+"?"+x.r.URL.RawQuery+"\x00")
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// pass carries a call that nobody judges, as it comes and goes.
func (x *exchange) pass() error {
	if x.who.Suspended {
		return fault.New(fault.AgentSuspended, "This agent is suspended. An operator can resume it.")
	}
	body := io.Reader(nil)
	if x.r.Body != nil && x.r.Body != http.NoBody {
		// A provider may begin to answer before it has all of the request.
		_ = x.control.EnableFullDuplex()
		body = http.MaxBytesReader(x.w, x.r.Body, x.most)
	}
	links := x.vaulted && x.provider == Anthropic && strings.HasPrefix(x.path, "/v1/messages/batches") && !strings.HasSuffix(x.path, "/results")
	if links {
		x.header.Set("Accept-Encoding", "identity") // it is to be rewritten
	}
	res, cancel, err := x.call(body, x.r.ContentLength)
	defer cancel()
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	x.note.Status = res.StatusCode
	defer x.record(form.Facts{})
	if links && isJSON(res.Header) {
		return x.ownLinks(res)
	}
	return x.copy(res)
}

// resultsURL is the address in a batch from which a client fetches its results.
var resultsURL = regexp.MustCompile(`("results_url"\s*:\s*")https?:(?:\\?/){2}[^/"\\]+`)

// ownLinks points a batch's results to us: the client would send our key to the provider.
func (x *exchange) ownLinks(res *http.Response) error {
	text, err := readReply(res)
	if err != nil {
		return err
	}
	if coding := res.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return &gatewayError{"The provider's reply has a coding that was not asked for, and its links cannot be changed."}
	}
	text = resultsURL.ReplaceAll(text, []byte("${1}"+x.p.core.BaseURL+x.prefix))
	x.reply(res.StatusCode, res.Header, len(text))
	_, err = x.w.Write(text)
	return abort(err)
}

// buffers are for replies on their way.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

type buffer [32 << 10]byte

// copy gives the reply on as it comes. One that breaks off breaks off there, too.
func (x *exchange) copy(res *http.Response) error {
	length := int(res.ContentLength)
	x.reply(res.StatusCode, res.Header, length)
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	for {
		n, err := res.Body.Read(buf[:])
		if n > 0 {
			if gone := x.out.write(buf[:n], length < 0); gone != nil {
				return nil // there is nobody to tell
			}
		}
		if errors.Is(err, io.EOF) {
			_ = x.out.write(nil, length >= 0) // what is written down comes after
			return nil
		}
		if err != nil {
			return abort(err)
		}
	}
}

// abort breaks the connection off, so that nobody takes what was sent for all there is.
func abort(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// reply sends the status and the headers of the provider's reply, and none of ours.
func (x *exchange) reply(status int, from http.Header, length int) {
	if x.out.committed { // it was held before it was sent
		return
	}
	h := x.w.Header()
	clear(h)
	for name, values := range from {
		h[name] = values
	}
	dropHops(h)
	h.Del("Content-Length")
	if length >= 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	x.out.committed = true
	x.w.WriteHeader(status)
}

// fail answers with an error of ours, or ends with it what was begun.
func (x *exchange) fail(f failure) {
	switch {
	case !x.out.committed:
		x.out.committed = true
		h := x.w.Header()
		h.Del("Content-Length")
		h.Del("Content-Encoding")
		f.write(x.w, x.provider)
	case x.out.machine != nil:
		_ = x.out.write(x.out.machine.Failing(f.kind, f.message), true)
	default:
		panic(http.ErrAbortHandler)
	}
}

func isJSON(h http.Header) bool { return strings.Contains(h.Get("Content-Type"), "json") }
func isEvents(h http.Header) bool {
	return strings.HasPrefix(strings.TrimSpace(strings.ToLower(h.Get("Content-Type"))), "text/event-stream")
}
