package conform

import (
	_ "embed" // for the cases
	"slices"
	"time"
)

//go:embed mail.yaml
var mailCases []byte

// MailSuite is a file of cases about AMP v0.1.2 messaging.
type MailSuite struct {
	Cases []MailCase `yaml:"cases"`
}

// MailCase is one thing that a provider has to do. Every case has agents of its own,
// alice and bob if it names none. $alice stands for an agent's address, $alice_key for
// its API key, and so on; a value that a step saves stands under its name.
type MailCase struct {
	Name   string     `yaml:"name"`
	Needs  []Need     `yaml:"needs"`
	Agents *[]string  `yaml:"agents"`
	Steps  []MailStep `yaml:"steps"`
	// MailStep is the one step of a case that has no list of them.
	MailStep `yaml:",inline"`
}

// The needs of cases about mail, beside Operator.
const (
	Loopback Need = "loopback" // a server that may call this machine
	OpenDoor Need = "open"     // registration without a key
)

// MailStep is one thing that is done: a call, a message, a look into a queue, or
// something on a socket.
type MailStep struct {
	// Call is a method and a path, such as "POST /v1/route".
	Call string `yaml:"call"`
	// As is who makes the call: an agent, none, wrong, raw:AGENT (the key without Bearer), operator or owner.
	As      string            `yaml:"as"`
	Body    *string           `yaml:"body"`
	Headers map[string]string `yaml:"headers"`
	// Times repeats the call; the last answer counts.
	Times int `yaml:"times"`
	// Pad adds white space to the body up to this many bytes.
	Pad int `yaml:"pad"`

	// Get and Put are whole addresses that the server has given, to download from and to upload to.
	Get string `yaml:"get"`
	Put string `yaml:"put"`

	// The special things. At most one of them is set; with Send, Call may say where the message goes.
	Send    *Letter  `yaml:"send"`
	Receive *Receipt `yaml:"receive"`
	Prove   *Proof   `yaml:"prove"`
	Socket  *Socket  `yaml:"socket"`
	// Hook is the agent whose webhook is started, or whose next call is waited for.
	Hook string `yaml:"hook"`

	Expect MailExpect `yaml:"expect"`
	// Save gives names to values of the answer, by their paths, for later steps.
	Save map[string]string `yaml:"save"`
}

// Letter is a message that an agent sends, signed unless it says otherwise.
type Letter struct {
	// From is an agent, alice when empty; To is an address, $bob when empty.
	From      string `yaml:"from"`
	To        string `yaml:"to"`
	Subject   string `yaml:"subject"`
	Priority  string `yaml:"priority"`
	InReplyTo string `yaml:"in_reply_to"`
	// Payload is the payload as it is sent, and Canonical the text whose hash is signed, if that differs: clients of every
	// generation hash another form of the same payload.
	Payload   string `yaml:"payload"`
	Canonical string `yaml:"canonical"`
	// Sign is none, flip (one bit is wrong) or stranger (another key); a good signature when empty.
	Sign string `yaml:"sign"`
	// What is signed in place of what is sent, for signatures that must not verify.
	SignedFrom    string `yaml:"signed_from"`
	SignedTo      string `yaml:"signed_to"`
	SignedSubject string `yaml:"signed_subject"`
	// Shape is envelope or flat; More are further members, as they are sent.
	Shape string `yaml:"shape"`
	More  string `yaml:"more"`
}

// Receipt looks for the last sent message in an agent's queue. Its payload must be the
// bytes that were sent, and its signature must verify with the envelope and the key
// beside it.
type Receipt struct {
	By     string `yaml:"by"`
	Absent bool   `yaml:"absent"`
}

// Proof makes $proof, a signature that proves who owns a key, and $new_pem, the key
// that it is for.
type Proof struct {
	// By is the agent whose key signs; anything else is a stranger.
	By string `yaml:"by"`
	// Over says what is signed: sent, newline, hex, raw, der or registration.
	Over string `yaml:"over"`
	// Age makes the proof so many seconds old.
	Age int `yaml:"age"`
}

// Socket is something that happens on a WebSocket.
type Socket struct {
	// Open opens a socket at a path; As names it for later steps.
	Open string `yaml:"open"`
	As   string `yaml:"as"`
	// Frame is sent. Next is the type of the frame that has to come, or closed for the end, with Code.
	Frame string `yaml:"frame"`
	Next  string `yaml:"next"`
	Code  int    `yaml:"code"`
	Close bool   `yaml:"close"`
	// Quiet checks that nothing else arrives: the answer to a ping comes next.
	Quiet bool `yaml:"quiet"`
}

// MailExpect is what an answer has to be. Paths have dots, such as messages.0.id;
// length is that of a list.
type MailExpect struct {
	HTTP  int    `yaml:"http"`
	Error string `yaml:"error"`
	Field string `yaml:"field"`
	// Is has values by path, Matches regular expressions; Has are paths with a value, Lacks paths without one.
	Is      map[string]string `yaml:"is"`
	Has     []string          `yaml:"has"`
	Lacks   []string          `yaml:"lacks"`
	Matches map[string]string `yaml:"matches"`
	// Headers have parts of headers, and Says is a part of the body.
	Headers map[string]string `yaml:"headers"`
	Says    string            `yaml:"says"`
	// AtLeast and AtMost bound how long the answer takes.
	AtLeast time.Duration `yaml:"at_least"`
	AtMost  time.Duration `yaml:"at_most"`
}

// MailCases returns the cases of AMP v0.1.2 messaging.
func MailCases() (*MailSuite, error) {
	s := &MailSuite{}
	if err := readCases(mailCases, s); err != nil {
		return nil, err
	}
	return s, eachCase(s.Cases, func(c *MailCase) string { c.complete(); return c.Name })
}

// complete makes a list of the single step of a short case, and adds the needs that
// follow from its steps.
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
