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

// Suite is a file of cases about signals.
type Suite struct {
	// Payload is the message that every step starts from, member by member and in this
	// order.
	Payload []Member `yaml:"payload"`
	Cases   []Case   `yaml:"cases"`
}

// Member is one member of a JSON object. Its value is kept as text, so that a case can
// send what no encoder would write.
type Member struct {
	Name string `yaml:"name"`
	// JSON is the value exactly as it is sent, which need not be valid JSON.
	JSON string `yaml:"json"`
}

// Case is one thing that a server has to do: a few calls, one after another. Cases do
// not depend on each other.
type Case struct {
	Name string `yaml:"name"`
	// Needs is what the case takes beside an agent's key. complete adds what follows from
	// its steps.
	Needs []Need `yaml:"needs"`
	// Policy is what the policy has to do with the signals of the case, if that matters.
	Policy Policy `yaml:"policy"`
	// Rule is a rule of the policy for the signals of the case, if Policy says too little.
	Rule  map[string]any `yaml:"rule"`
	Steps []Step         `yaml:"steps"`
	// Step is the one step of a case that has no list of them.
	Step `yaml:",inline"`
}

// Need is something that a case needs and that a kit may not have.
type Need string

// The needs of cases about signals.
const (
	Operator      Need = "operator"       // a token that may decide gates
	Rules         Need = "rules"          // a token that may change the policy
	Public        Need = "public"         // a server that does not listen on loopback
	DefaultPolicy Need = "default-policy" // a policy that confirms declared gates
)

// Policy is what a policy does with a signal.
type Policy string

// The values of Policy. Where the kit may not change the policy, probe finds out what
// it does.
const (
	Holds  Policy = "holds"  // a declared gate is opened
	Allows Policy = "allows" // a signal without declaration is approved
)

// Step is one call, and what is expected of its answer.
type Step struct {
	// Post is where the message goes; /amp/signal when empty.
	Post string `yaml:"post"`
	// Get is an address to get instead of sending a message. $gate is the gate of the step before.
	Get string `yaml:"get"`
	// Decide approves or rejects the gate of the step before, as an operator, instead of a call.
	Decide string `yaml:"decide"`
	Note   string `yaml:"note"`

	// How the message differs from the suite's. $run and $agent stand for the case's own.
	// Changes apply in the order of the fields.

	// Again starts from what the step before sent, for repeated messages.
	Again bool `yaml:"again"`
	// Set, JSON, Long and Hex set members: to YAML values, to JSON as it is sent, to long texts, and to bytes.
	Set  map[string]any    `yaml:"set"`
	JSON map[string]string `yaml:"json"`
	Long map[string]Long   `yaml:"long"`
	Hex  map[string]string `yaml:"hex"`
	// Drop leaves members out, and Twice sends one twice.
	Drop  []string `yaml:"drop"`
	Twice string   `yaml:"twice"`
	// Shape is spaced or reversed; Size pads the message with white space to this many bytes.
	Shape string `yaml:"shape"`
	Size  int    `yaml:"size"`
	// Body replaces all of the message.
	Body *string `yaml:"body"`

	// Key is none, wrong or operator; the agent's own when empty.
	Key string `yaml:"key"`
	// Media replaces the content type.
	Media   string            `yaml:"media"`
	Headers map[string]string `yaml:"headers"`

	Meanwhile *Meanwhile `yaml:"meanwhile"`
	Expect    Expect     `yaml:"expect"`
}

// Long is a text that repeats one string many times, for limits.
type Long struct {
	Of    string `yaml:"of"`
	Times int    `yaml:"times"`
}

// Meanwhile is what an operator does while the call of the step waits.
type Meanwhile struct {
	Decide string        `yaml:"decide"`
	Note   string        `yaml:"note"`
	After  time.Duration `yaml:"after"`
}

// Expect is what an answer has to be. A field that is not set allows any answer, or any
// error, in its right form: the form is always checked.
type Expect struct {
	// Taken wants 200 or 202 with an answer in the form of signals.
	Taken bool `yaml:"taken"`
	// Wrong wants 400 invalid_payload about exactly these fields.
	Wrong  []string `yaml:"wrong"`
	HTTP   int      `yaml:"http"`
	Status string   `yaml:"status"`
	// Gate is none, opened for a new one, or same for that of the step before.
	Gate    string `yaml:"gate"`
	Message string `yaml:"message"`

	// Error, Field and Supported (details.supported) are members of an error.
	Error     string   `yaml:"error"`
	Field     string   `yaml:"field"`
	Supported []string `yaml:"supported"`

	// Says is a part of the body, and Headers have parts of headers; Absent headers are not there.
	Says    string            `yaml:"says"`
	Headers map[string]string `yaml:"headers"`
	Absent  []string          `yaml:"absent"`
	// Events are the names of a stream's events, in their order.
	Events []string `yaml:"events"`
	// AtLeast and AtMost bound how long the answer takes, for calls that wait.
	AtLeast time.Duration `yaml:"at_least"`
	AtMost  time.Duration `yaml:"at_most"`
}

// SignalSuite returns the cases of AMP v1.0 signals.
func SignalSuite() (*Suite, error) { return readSuite(signalCases) }

// readSuite reads a file of cases and checks that they can be run.
func readSuite(text []byte) (*Suite, error) {
	s := &Suite{}
	if err := readCases(text, s); err != nil {
		return nil, err
	}
	return s, eachCase(s.Cases, func(c *Case) string { c.complete(); return c.Name })
}

// readCases decodes a file of cases. Unknown fields are errors: a misspelled
// expectation would be no expectation.
func readCases(text []byte, suite any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(suite); err != nil {
		return fmt.Errorf("read the cases: %w", err)
	}
	return nil
}

// eachCase calls complete for every case, which returns its name, and makes sure that
// names are unique: a report names cases only so.
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

// complete makes a list of the single step of a short case, and adds the needs that
// follow from its steps.
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
