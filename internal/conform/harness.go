package conform

import (
	"context"
	_ "embed" // for the cases
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"signalbox/internal/wire"
)

//go:embed harness.json
var harnessCases []byte

//go:embed harness.yaml
var harnessPolicy []byte

// HarnessPolicy returns the policy under which the cases of AHP hold: some cases expect
// a refusal, and some a policy that fails.
func HarnessPolicy() []byte { return slices.Clone(harnessPolicy) }

// HarnessSuite is a file of cases about AHP.
type HarnessSuite struct {
	Cases []HarnessCase `json:"cases"`
}

// HarnessCase is one thing that a harness has to do: a message and the answer to it, or
// a procedure in words.
type HarnessCase struct {
	Number    int           `json:"n"`
	Name      string        `json:"name"`
	Transport string        `json:"transport"` // any, or a list with commas
	Greeted   bool          `json:"after_handshake"`
	Send      wire.Raw      `json:"send"`
	Status    int           `json:"http_status"`
	Expect    harnessExpect `json:"expect"`
	Do        string        `json:"do"`          // in words, where one message cannot show it
	Says      string        `json:"server_says"` // a case about clients
}

// harnessExpect is what the answer has to be. Kind is result, error, error_or_block,
// batch, or one of accepted, rejected and none for messages that a stream does not
// answer.
type harnessExpect struct {
	Kind string `json:"kind"`
	// Result is all of the result, Has are members with their values, Keys members that
	// have to be there.
	Result   wire.Raw       `json:"result"`
	Has      map[string]any `json:"result_has"`
	Keys     []string       `json:"result_keys"`
	ID       *string        `json:"id"`
	Code     int            `json:"code"`
	Contains string         `json:"message_contains"`
	// Decisions are the words of a batch, in order.
	Decisions []string `json:"decisions"`
}

// HarnessCases returns the cases of AHP 2.4, or those of a file in the same form.
func HarnessCases(file []byte) (*HarnessSuite, error) {
	if file == nil {
		file = harnessCases
	}
	s := &HarnessSuite{}
	if err := wire.UnmarshalPart(file, s); err != nil {
		return nil, fmt.Errorf("read the cases: %w", err)
	}
	if len(s.Cases) == 0 {
		return nil, errors.New("read the cases: there are none under \"cases\"")
	}
	return s, nil
}

// HarnessKit runs cases against a harness that decides as HarnessPolicy does. Cases
// after a handshake share one connection; the others have their own.
type HarnessKit struct {
	// Target is an address (http, https, ws or wss), a Unix socket (unix: and a path, or
	// the path), or a command to start.
	Target string
	Key    string // of an agent, for addresses

	transport string
	shared    *line // after a handshake
}

// The transports, as cases name them.
const (
	overHTTP  = "http"
	overWS    = "ws"
	overUnix  = "unix"
	overStdio = "stdio"
)

// answerTime is how long an answer may take: longer than a harness holds a call.
const answerTime = 15 * time.Second

// detectTransport finds out which transport the target is. An address without a path gets /ahp.
func (k *HarnessKit) detectTransport() error {
	u, err := url.Parse(k.Target)
	switch scheme, _, _ := strings.Cut(k.Target, ":"); {
	case scheme == "unix":
		k.transport = overUnix
	case scheme == "http" || scheme == "https" || scheme == "ws" || scheme == "wss":
		if err != nil || u.Host == "" {
			return fmt.Errorf("%q is not an address", k.Target)
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = "/ahp"
		}
		// wss and https share everything but the way of connecting.
		k.Target, k.transport = u.String(), overHTTP
		if strings.HasPrefix(scheme, "ws") {
			k.transport = overWS
		}
	case strings.TrimSpace(k.Target) == "":
		return errors.New("there is no target")
	default:
		k.transport = overStdio
		// A path to a socket may be given without unix:.
		if at, err := os.Stat(k.Target); err == nil && at.Mode()&os.ModeSocket != 0 {
			k.Target, k.transport = "unix:"+k.Target, overUnix
		}
	}
	return nil
}

// Run runs every case, one after another.
func (k *HarnessKit) Run(ctx context.Context, suite *HarnessSuite) (report Report, err error) {
	if err := k.detectTransport(); err != nil {
		return report, err
	}
	defer func() {
		if k.shared != nil {
			k.shared.close()
		}
	}()
	err = report.each(ctx, len(suite.Cases), func(i int) Outcome { return k.run(ctx, &suite.Cases[i]) })
	return report, err
}

// run runs one case. Cases about clients, and about other transports, are skipped.
func (k *HarnessKit) run(ctx context.Context, c *HarnessCase) Outcome {
	name := fmt.Sprintf("%d %s", c.Number, c.Name)
	if c.Says != "" {
		return Outcome{name, "skipped", "it is about clients"}
	}
	if c.Transport != "any" && !slices.Contains(strings.Split(c.Transport, ","), k.transport) {
		return Outcome{name, "skipped", "it is not about " + k.transport}
	}
	try := func(ctx context.Context) error { return k.send(ctx, c) }
	if c.Do != "" {
		procedure := procedures[c.Number]
		if procedure == nil {
			return Outcome{name, "skipped", "it is in words that this kit does not know"}
		}
		try = func(ctx context.Context) error { return procedure(ctx, k) }
	}
	// A procedure may wait for several answers.
	ctx, cancel := context.WithTimeout(ctx, 4*answerTime)
	defer cancel()
	return outcome(name, try(ctx))
}

// send sends the message of a case and checks what comes back, which differs by
// transport: over HTTP every message has a response, on a stream only requests do
// (AHP-14).
func (k *HarnessKit) send(ctx context.Context, c *HarnessCase) error {
	// The files are laid out for people; on a stream, a line break ends a message.
	text := c.Send.Clone()
	if err := text.Compact(); err != nil { // a line is a message
		return err
	}
	// A case that is about broken JSON has the text to send in a string.
	var raw struct {
		Text *string `json:"__raw__"`
	}
	if wire.UnmarshalPart(c.Send, &raw) == nil && raw.Text != nil {
		text = []byte(*raw.Text)
	}
	if k.transport == overHTTP {
		status, body, _, err := k.post(ctx, text, nil)
		if err != nil {
			return err
		}
		if c.Status != 0 && status != c.Status {
			return fmt.Errorf("answered with %d, and should be with %d: %.300s", status, c.Status, body)
		}
		if c.Expect.Kind == "accepted" {
			if len(body) > 0 {
				return fmt.Errorf("a notification is answered with an empty body, and not %.300s", body)
			}
			return nil
		}
		return c.Expect.check(body)
	}
	l, err := k.line(ctx, c.Greeted)
	if err != nil {
		return err
	}
	// The shared connection stays open for the next case.
	if !c.Greeted {
		defer l.close()
	}
	if err := l.write(text); err != nil {
		return err
	}
	switch c.Expect.Kind {
	case "accepted", "rejected", "none":
		return l.silent(ctx)
	}
	body, err := l.read(ctx)
	if err != nil {
		return err
	}
	return c.Expect.check(body)
}

// check compares a response with what is expected.
func (e harnessExpect) check(text []byte) error {
	var got struct {
		Version string   `json:"jsonrpc"`
		ID      any      `json:"id"`
		Result  wire.Raw `json:"result"`
		Error   *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := wire.UnmarshalPart(text, &got); err != nil || got.Version != "2.0" {
		return fmt.Errorf("the answer is no JSON-RPC 2.0 response: %.300s", text)
	}
	// AHP-11: over HTTP a rejected notification has a response.
	if e.Kind == "rejected" {
		e.Kind, e.Code = "error", -32603
	}
	if e.Kind == "error" {
		switch {
		case got.Error == nil:
			return fmt.Errorf("should be the error %d: %.300s", e.Code, text)
		case got.Error.Code != e.Code || !strings.Contains(got.Error.Message, e.Contains):
			return fmt.Errorf("should be the error %d with %q: %.300s", e.Code, e.Contains, text)
		}
		return nil
	}
	if got.Error != nil {
		// Both are refusals that AHP allows where the policy fails.
		if e.Kind == "error_or_block" && got.Error.Code == e.Code {
			return nil
		}
		return fmt.Errorf("should not be an error: %.300s", text)
	}
	// Ids are compared as JSON values, so a number does not match its text (AHP-3).
	if e.ID != nil && got.ID != *e.ID {
		return fmt.Errorf("the id should be %q: %.300s", *e.ID, text)
	}
	return e.checkResult(got.Result)
}

// checkResult compares the result of a response.
func (e harnessExpect) checkResult(raw wire.Raw) error {
	var result map[string]any
	if err := wire.UnmarshalPart(raw, &result); err != nil {
		return fmt.Errorf("the result should be an object: %.300s", raw)
	}
	if e.Result != nil && !wire.Same(e.Result, raw) {
		return fmt.Errorf("the result should be %s: %.300s", e.Result, raw)
	}
	for name, want := range e.Has {
		if result[name] != want {
			return fmt.Errorf("%s should be %v: %.300s", name, want, raw)
		}
	}
	for _, name := range e.Keys {
		if _, there := result[name]; !there {
			return fmt.Errorf("%s is missing: %.300s", name, raw)
		}
	}
	if e.Kind == "error_or_block" && result["decision"] != "block" {
		return fmt.Errorf("the decision should be block: %.300s", raw)
	}
	if e.Kind != "batch" {
		return nil
	}
	list, _ := result["decisions"].([]any)
	var words []string
	for _, one := range list {
		members, _ := one.(map[string]any)
		word, _ := members["decision"].(string)
		words = append(words, word)
	}
	if !slices.Equal(words, e.Decisions) {
		return fmt.Errorf("the decisions should be %s, and are %s", e.Decisions, words)
	}
	return nil
}
