package conform

import (
	_ "embed" // for the cases
	"slices"
	"time"
)

//go:embed mail.yaml
var mailCases []byte

// MailSuite is a file of cases of AMP v0.1.2 messaging.
type MailSuite struct {
	Cases []MailCase `yaml:"cases"`
}

// MailCase is one thing that a provider should do. Every case has agents of its own,
// alice and bob when it names none. $alice stands for an agent's address, $alice_key for
// its API key, and so on; what a step saves stands for itself.
type MailCase struct {
	Name   string     `yaml:"name"`
	Needs  []Need     `yaml:"needs"`
	Agents *[]string  `yaml:"agents"`
	Steps  []MailStep `yaml:"steps"`
	// MailStep is the one step of a case that has no list of them.
	MailStep `yaml:",inline"`
}

// What mail cases need.
const (
	Loopback Need = "loopback" // a server that may call this machine
	OpenDoor Need = "open"     // registration without a key
)

// MailStep is one thing that is done: a call, a message, a look into a queue, or
// something on a socket.
type MailStep struct {
	Call    string            `yaml:"call"` // "POST /v1/route"
	As      string            `yaml:"as"`   // an agent, none, wrong, raw:AGENT, operator or owner
	Body    *string           `yaml:"body"`
	Headers map[string]string `yaml:"headers"`
	Times   int               `yaml:"times"` // the last answer counts
	Pad     int               `yaml:"pad"`   // white space is added up to this many bytes

	Get string `yaml:"get"` // an address that the server has given
	Put string `yaml:"put"` // one to upload to

	Send    *Letter  `yaml:"send"`
	Receive *Receipt `yaml:"receive"`
	Prove   *Proof   `yaml:"prove"`
	Socket  *Socket  `yaml:"socket"`
	Hook    string   `yaml:"hook"` // the agent whose webhook calls are waited for

	Expect MailExpect        `yaml:"expect"`
	Save   map[string]string `yaml:"save"` // names to paths of the answer
}

// Letter is a message that an agent sends, signed unless it says otherwise.
type Letter struct {
	From      string `yaml:"from"` // an agent; alice when empty
	To        string `yaml:"to"`   // $bob when empty
	Subject   string `yaml:"subject"`
	Priority  string `yaml:"priority"`
	InReplyTo string `yaml:"in_reply_to"`
	Payload   string `yaml:"payload"`   // as it is sent
	Canonical string `yaml:"canonical"` // as it is signed, where that differs
	Sign      string `yaml:"sign"`      // none, flip or stranger
	// What is signed in place of what is sent.
	SignedFrom    string `yaml:"signed_from"`
	SignedTo      string `yaml:"signed_to"`
	SignedSubject string `yaml:"signed_subject"`
	Shape         string `yaml:"shape"` // envelope, or flat
	More          string `yaml:"more"`  // further members, as they are sent
}

// Receipt looks for the message that was sent last in an agent's queue: its payload must
// be the bytes that were sent, and its signature must verify with what stands beside it.
type Receipt struct {
	By     string `yaml:"by"`
	Absent bool   `yaml:"absent"`
}

// Proof makes $proof, and $new_pem with the key that it is for.
type Proof struct {
	By   string `yaml:"by"`   // the agent whose key signs; a stranger's when it is "stranger"
	Over string `yaml:"over"` // sent, newline, hex, raw, der or registration
	Age  int    `yaml:"age"`  // seconds
}

// Socket is something on a WebSocket.
type Socket struct {
	Open  string `yaml:"open"` // a path
	As    string `yaml:"as"`   // whose socket it is
	Frame string `yaml:"frame"`
	Next  string `yaml:"next"` // the type of the next frame, "closed" for the end
	Code  int    `yaml:"code"` // of closing
	Close bool   `yaml:"close"`
	// Quiet says that nothing comes for a moment.
	Quiet bool `yaml:"quiet"`
}

// MailExpect is what an answer should be.
type MailExpect struct {
	HTTP    int               `yaml:"http"`
	Error   string            `yaml:"error"`
	Field   string            `yaml:"field"`
	Is      map[string]string `yaml:"is"` // paths to values
	Has     []string          `yaml:"has"`
	Lacks   []string          `yaml:"lacks"`
	Matches map[string]string `yaml:"matches"` // paths to expressions
	Headers map[string]string `yaml:"headers"` // parts of them
	Says    string            `yaml:"says"`
	AtLeast time.Duration     `yaml:"at_least"`
	AtMost  time.Duration     `yaml:"at_most"`
}

// MailCases are the cases of AMP v0.1.2 messaging.
func MailCases() (*MailSuite, error) {
	s := &MailSuite{}
	if err := readCases(mailCases, s); err != nil {
		return nil, err
	}
	return s, eachCase(s.Cases, func(c *MailCase) string { c.complete(); return c.Name })
}

// complete makes a list of the one step of a short case, and adds what steps need.
func (c *MailCase) complete() {
	if len(c.Steps) == 0 {
		c.Steps = []MailStep{c.MailStep}
	}
	for _, step := range c.Steps {
		if (step.As == "operator" || step.As == "owner") && !slices.Contains(c.Needs, Operator) {
			c.Needs = append(c.Needs, Operator)
		}
	}
}
