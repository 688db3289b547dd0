package conform

import (
	"bytes"
	_ "embed" // for the cases
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed signal.yaml
var signalCases []byte

// Suite is a file of cases.
type Suite struct {
	// Payload is what every message is made from, member by member and in this order.
	Payload []Member `yaml:"payload"`
	Cases   []Case   `yaml:"cases"`
}

// Member is one member of a JSON object.
type Member struct {
	Name string `yaml:"name"`
	JSON string `yaml:"json"` // its value, as it is sent
}

// Case is one thing that a server should do: a few calls, one after another.
type Case struct {
	Name string `yaml:"name"`
	// Needs is what the case takes beside a key; what follows from its steps is added.
	Needs []Need `yaml:"needs"`
	// Policy is what the policy does with the signals of the case, where that matters.
	Policy Policy `yaml:"policy"`
	// Rule is a rule of the policy for the signals of the case, where Policy says too little.
	Rule  map[string]any `yaml:"rule"`
	Steps []Step         `yaml:"steps"`
	// Step is the one step of a case that has no list of them.
	Step `yaml:",inline"`
}

// Need is something that a case needs.
type Need string

// What cases need.
const (
	Operator      Need = "operator"       // a token that may decide gates
	Rules         Need = "rules"          // a token that may change the policy
	Public        Need = "public"         // a server that does not listen on loopback
	DefaultPolicy Need = "default-policy" // a policy that confirms declared gates
)

// Policy is what becomes of a signal.
type Policy string

// What the policy does. Where the kit may not change it, it finds out what it does.
const (
	Holds  Policy = "holds"  // a declared gate is opened
	Allows Policy = "allows" // a signal without declaration is approved
)

// Step is one call, and what is expected of its answer.
type Step struct {
	Post   string `yaml:"post"`   // where the message goes, /amp/signal when empty
	Get    string `yaml:"get"`    // an address to get instead; $gate is the last gate
	Decide string `yaml:"decide"` // approve or reject the last gate, as an operator
	Note   string `yaml:"note"`

	// How the message differs from the suite's. $run and $agent stand for the case's own.
	Again bool              `yaml:"again"` // it begins with what the step before sent
	Set   map[string]any    `yaml:"set"`
	JSON  map[string]string `yaml:"json"` // values as they are sent
	Long  map[string]Long   `yaml:"long"`
	Hex   map[string]string `yaml:"hex"` // values as bytes
	Drop  []string          `yaml:"drop"`
	Twice string            `yaml:"twice"` // a member that is sent twice
	Shape string            `yaml:"shape"` // spaced, or reversed
	Size  int               `yaml:"size"`  // white space is added up to this many bytes
	Body  *string           `yaml:"body"`  // all of it

	Key     string            `yaml:"key"`   // none, wrong or operator; the agent's when empty
	Media   string            `yaml:"media"` // the content type
	Headers map[string]string `yaml:"headers"`

	Meanwhile *Meanwhile `yaml:"meanwhile"`
	Expect    Expect     `yaml:"expect"`
}

// Long is text of many times the same.
type Long struct {
	Of    string `yaml:"of"`
	Times int    `yaml:"times"`
}

// Meanwhile is what an operator does while the call waits.
type Meanwhile struct {
	Decide string        `yaml:"decide"`
	Note   string        `yaml:"note"`
	After  time.Duration `yaml:"after"`
}

// Expect is what an answer should be. What is not said may be anything that is an
// answer, or an error, in its right form.
type Expect struct {
	Taken   bool     `yaml:"taken"` // 200 or 202 with an answer
	Wrong   []string `yaml:"wrong"` // 400 invalid_payload about exactly these fields
	HTTP    int      `yaml:"http"`
	Status  string   `yaml:"status"`
	Gate    string   `yaml:"gate"` // none, opened, or same as that of the step before
	Message string   `yaml:"message"`

	Error     string   `yaml:"error"`
	Field     string   `yaml:"field"`
	Supported []string `yaml:"supported"` // details.supported

	Says    string            `yaml:"says"`    // part of the answer
	Headers map[string]string `yaml:"headers"` // parts of them
	Absent  []string          `yaml:"absent"`  // headers that are not there
	Events  []string          `yaml:"events"`  // of a stream, in their order
	AtLeast time.Duration     `yaml:"at_least"`
	AtMost  time.Duration     `yaml:"at_most"`
}

// SignalSuite are the cases of AMP v1.0 signals.
func SignalSuite() (*Suite, error) { return readSuite(signalCases) }

// readSuite reads a file of cases and checks that they can be run.
func readSuite(text []byte) (*Suite, error) {
	s := &Suite{}
	if err := readCases(text, s); err != nil {
		return nil, err
	}
	return s, eachCase(s.Cases, func(c *Case) string { c.complete(); return c.Name })
}

// readCases reads a file of cases.
func readCases(text []byte, suite any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(suite); err != nil {
		return fmt.Errorf("read the cases: %w", err)
	}
	return nil
}

// eachCase calls complete for every case, and makes sure that each has a name of its own, which
// complete returns.
func eachCase[C any](cases []C, complete func(*C) (name string)) error {
	names := map[string]bool{}
	for i := range cases {
		name := complete(&cases[i])
		if name == "" || names[name] {
			return fmt.Errorf("read the cases: case %d has no name of its own: %q", i+1, name)
		}
		names[name] = true
	}
	return nil
}

// complete makes a list of the one step of a short case, and adds what steps need.
func (c *Case) complete() {
	if len(c.Steps) == 0 {
		c.Steps = []Step{c.Step}
	}
	need := func(n Need) {
		if !slices.Contains(c.Needs, n) {
			c.Needs = append(c.Needs, n)
		}
	}
	if c.Rule != nil {
		need(Rules)
	}
	for _, s := range c.Steps {
		if s.Decide != "" || s.Meanwhile != nil || s.Key == "operator" {
			need(Operator)
		}
	}
}
