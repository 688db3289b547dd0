package run

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/sandbox"
	"signalbox/internal/wire"
)

// Status is the status of a run.
type Status string

// The values of Status. All but Running are final.
const (
	Running   Status = "running"
	Done      Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled" // by a person
	Stopped   Status = "stopped"   // by a budget, a limit of time or a policy: see Run.Cause
)

// statuses are all of them, in the order in which people are told them.
var statuses = []Status{Running, Done, Failed, Cancelled, Stopped}

// oldDone is Done in entries of version 0.1, which are never changed.
const oldDone Status = "done"

// Budget is how much a run, or a day, may use. 0 is no limit.
type Budget struct {
	USD    float64 `json:"usd,omitempty"`
	Tokens int64   `json:"tokens,omitempty"`
}

// Limits are how long a run may take, in seconds: until its agent says something, from one sign of life to the next, and
// all in all. 0 is what the configuration has, in a request, and no limit in a run.
type Limits struct {
	Start float64 `json:"start_seconds,omitempty"`
	Idle  float64 `json:"idle_seconds,omitempty"`
	Total float64 `json:"total_seconds,omitempty"`
}

// maxSeconds bounds a limit: a year.
const maxSeconds = 366 * 24 * 3600

// or is the limits, with those of the configuration for what is absent.
func (l Limits) or(others Limits) Limits {
	return Limits{Start: cmp.Or(l.Start, others.Start), Idle: cmp.Or(l.Idle, others.Idle), Total: cmp.Or(l.Total, others.Total)}
}

// Request is the body of POST /runs: a run that somebody asks for.
type Request struct {
	Engine string `json:"engine" example:"claude"`
	Prompt string `json:"prompt" example:"fix the failing test"`
	Dir    string `json:"dir,omitempty"`    // an absolute path on the machine of the run
	Resume string `json:"resume,omitempty"` // the session to go on with: its id, or a text with a resume line
	Model  string `json:"model,omitempty"`  // instead of the configured one; for amp the mode
	Budget Budget `json:"budget,omitzero"`
	Limits Limits `json:"limits,omitzero"`
	// Mode is what the agent may do: read, edit, full or supervised; absent is what the configuration has. A caller that
	// runs the agent may also say own, for the CLI's own settings. Supervised is the same as the mode supervised.
	Mode       engine.Mode `json:"mode,omitempty"`
	Supervised bool        `json:"supervised,omitempty"`
	// Sandbox is whether the agent works in a sandbox; absent is what the session that it goes on with had, or the
	// configuration has. Hosts are what it may call from there beside its provider and those of the configuration.
	Sandbox *bool    `json:"sandbox,omitempty"`
	Hosts   []string `json:"hosts,omitempty" example:"[]"` // each as HOST or HOST:PORT
	// Worktree gives the agent a git worktree of its own, on the branch signalbox/ID.
	Worktree bool   `json:"worktree,omitempty"`
	Host     string `json:"host,omitempty"` // the machine of a supervisor that is there already
	// User is on whose behalf: a name, an id or an e-mail; without it the owner of the agent that the run is counted for.
	User string `json:"user,omitempty"`
	// Agent is the agent as which its hooks ask: a name or an id. The run hands its work on to it; without one it hands
	// on nothing. A run that the server starts has the hooks of the server's machine.
	Agent string `json:"agent,omitempty"`
	// Delegation is the token of the handoff under which the run was started, such as that of another run. It is not
	// stored.
	Delegation string `json:"delegation,omitempty"`
	// Recorded says that the caller runs the CLI and reports. Without it the server starts
	// a supervisor.
	Recorded bool `json:"recorded,omitempty" example:"true"`
	// Metered is proxy if the caller leads the run's calls of models through the model proxy, which counts them; the
	// header X-Amp-Run has to name the run. MeterAgent is the agent whose calls they are: a name or an id, that of Agent
	// if absent.
	Metered    string `json:"metered,omitempty"`
	MeterAgent string `json:"meter_agent,omitempty"`
	// MeterKey is the SHA-256, in hex, of the provider's key that stands for that agent in the proxy. The run is not
	// metered if it stands for none.
	MeterKey string `json:"meter_key,omitempty"`
	// Keyed says that the caller has the provider's key. Without it, the proxy needs one in its vault.
	Keyed bool `json:"keyed,omitempty"`
	// Origin is where the run was asked for and is shown, such as telegram:-100:7. It
	// cannot be sent over HTTP, and nor can what follows.
	Origin  string   `json:"-"`
	Folders []string `json:"-"` // where it may work beside Options.Folders
	// With is called in the transaction that opens the run. If it fails, there is no run.
	With func(tx *ledger.Tx, run string) error `json:"-"`
}

// opened is the body of run.opened, which is stored.
type opened struct {
	behalf.Of         // on whose behalf
	Engine     string `json:"engine"`
	Prompt     string `json:"prompt"`
	Dir        string `json:"dir"`
	Resume     string `json:"resume"` // the id of the session
	Model      string `json:"model"`
	Budget     Budget `json:"budget"`
	Supervised bool   `json:"supervised"`
	Host       string `json:"host"`
	Launched   bool   `json:"launched"`
	Origin     string `json:"origin"`
	// Metered is by whom the run's calls of models are counted as they happen, Proxy or nobody, and MeterAgent the
	// agent, by its id, whose calls these are.
	Metered    string `json:"metered,omitzero"`
	MeterAgent string `json:"meter_agent,omitzero"`
	Limits     Limits `json:"limits,omitzero"` // absent in entries of version 0.1
	// Mode is what the agent may do; entries of version 0.1 only say whether it is supervised.
	Mode    engine.Mode `json:"mode,omitzero"`
	Sandbox bool        `json:"sandbox,omitzero"`
	Hosts   []string    `json:"hosts,omitempty"` // what it may call from the sandbox
	// Worktree says that it works in a git worktree of its own.
	Worktree bool `json:"worktree,omitzero"`
	// Named says that the request has named the mode, and not the configuration.
	Named bool `json:"named,omitzero"`
	// Task is the id of the task under whose handoff the run was opened, "" for none.
	Task string `json:"task,omitzero"`
}

// Proxy is the value of Metered for a run whose calls of models go through the model proxy.
const Proxy = "proxy"

// Run is one execution of an agent CLI, as it is shown. Open makes it. It is running
// until its completed event, which its supervisor reports, or the server if the
// supervisor goes silent; then it never changes again. Tokens and
// CostUSD never fall. Resume is the session, empty until the CLI has told it.
type Run struct {
	ID         string `json:"id"`
	Workspace  string `json:"workspace"`
	Engine     string `json:"engine"`
	Status     Status `json:"status"`
	Prompt     string `json:"prompt"`
	Dir        string `json:"dir"`
	Resume     string `json:"resume,omitempty"` // the id of the session
	Line       string `json:"resume_line,omitempty"`
	Model      string `json:"model,omitempty"`
	Budget     Budget `json:"budget"`
	Supervised bool   `json:"supervised,omitempty"`
	Launched   bool   `json:"launched,omitempty"`
	Host       string `json:"host,omitempty"`
	Stop       string `json:"stop,omitempty"` // why it was told to stop
	// Cause is what Stop comes from, and what ended a run that is cancelled or stopped: person, budget, time or policy.
	Cause    engine.Cause `json:"cause,omitempty"`
	OpenedAt time.Time    `json:"opened_at"`
	EndedAt  *time.Time   `json:"ended_at,omitempty"`
	// SilentAt is when a running agent was found to have been silent for long; absent once it has said something.
	SilentAt *time.Time `json:"silent_at,omitempty"`
	Limits   Limits     `json:"limits,omitzero"` // how long it may take
	// Mode is what the agent may do: read, edit, full or supervised, or own for what its CLI's own settings say. It is
	// absent where nobody has said.
	Mode engine.Mode `json:"mode,omitempty"`
	// Sandbox says that the agent works in a sandbox, and Hosts what it may call from there beside its provider.
	Sandbox bool     `json:"sandbox,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
	// Worktree says that the agent works in a git worktree of its own, which begins at the commit of Dir.
	Worktree bool `json:"worktree,omitempty"`
	// Named says that whoever opened the run has named the mode: the run is stopped if its stream shows more.
	Named   bool    `json:"mode_named,omitempty"`
	Events  int64   `json:"events"`
	Tokens  int64   `json:"tokens"`
	CostUSD float64 `json:"cost_usd"`
	Calls   int64   `json:"calls,omitempty"` // of models, as far as they are known
	// Metered is proxy if Tokens and CostUSD are those of calls through the model proxy. Said is then what the CLI says.
	Metered    string  `json:"metered,omitempty"`
	MeterAgent string  `json:"meter_agent,omitempty"` // the agent, by its id, whose calls these are
	Said       *Budget `json:"said,omitempty"`
	OpenedBy   string  `json:"opened_by"`
	Origin     string  `json:"origin,omitempty"`
	behalf.Of          // on whose behalf
	// Task is the task for which it was started, as the handoff shows under which that was.
	Task string `json:"task,omitempty"`
	// Trouble is why the run is held up: nothing of it can be recorded, as its supervisor says; only where one run is shown.
	Trouble string `json:"trouble,omitempty"`
	// Awaited are the decisions that the run waits for; only where one run is shown.
	Awaited []Awaited `json:"awaited,omitempty"`
	// Handoff is what the run hands on to its hooks: in the answer to the caller that reports the run, and nowhere else.
	Handoff *handoff.Handed `json:"handoff,omitempty"`
}

// Outcome is the status in words, with what has stopped the run.
func (r *Run) Outcome() string {
	switch {
	case r.Status == Stopped && r.Cause != "":
		return fmt.Sprintf("%s (%s)", r.Status, r.Cause)
	case r.SilentAt != nil:
		return fmt.Sprintf("%s (silent)", r.Status)
	}
	return string(r.Status)
}

// Awaited is a gate at which a person is awaited, as an agent of the run says.
type Awaited struct {
	Gate  string    `json:"gate"`
	Title string    `json:"title"`
	Agent string    `json:"agent"`
	Since time.Time `json:"since"`
	Link  string    `json:"link"` // where it can be decided
	// Outlasts says that the run goes on meanwhile, and that it is decided after its end too: it is about a task, a mail
	// or the trust of an agent.
	Outlasts bool `json:"outlasts,omitempty"`
}

// Page is a page of runs, the newest first.
type Page struct {
	Runs []Run  `json:"runs"`
	Next string `json:"next"`
}

// Report is what a supervisor sends: events in order. From is the number of the first.
type Report struct {
	From   int64   `json:"from" example:"0"`
	Events []Entry `json:"events" example:"[]"`
}

// Entry is an event with what the run has used in total by then.
type Entry struct {
	Event wire.Raw     `json:"event"`
	Usage engine.Usage `json:"usage"`
}

// Orders are what a supervisor hears.
type Orders struct {
	Events int64  `json:"events"` // how many are recorded
	Held   bool   `json:"held"`   // the session that was asked for is the run's
	Stop   string `json:"stop"`   // why the run is to stop, "" when it may go on
	// Cause is what Stop comes from: person or budget.
	Cause engine.Cause `json:"cause,omitempty"`
	Ended bool         `json:"ended"`           // there is nothing more to report
	Calls int64        `json:"calls,omitempty"` // how many calls of models are counted
	// Awaited are the decisions that the run waits for, for a supervisor that asks for them.
	Awaited []Awaited `json:"awaited,omitempty"`
	// Handoff is what the run hands on to its hooks, for a supervisor that asks for it.
	Handoff *handoff.Handed `json:"handoff,omitempty"`
}

// Pulse is a sign of life of a supervisor.
type Pulse struct {
	Thread  string `json:"thread,omitempty"`  // the session to hold, as engine:id
	Calls   int64  `json:"calls,omitempty"`   // to hear when so many calls of models are counted, and nothing else
	Handoff bool   `json:"handoff,omitempty"` // to hear what the run hands on
	// Supervisor names the process that is to watch a run that the server starts, before it starts the agent. The first
	// that asks has the run for good; others are refused.
	Supervisor string `json:"supervisor,omitempty"`
	// Awaited asks for the decisions that the run waits for. The answer comes at once if they are others than Known, by
	// the ids of their gates.
	Awaited bool     `json:"awaited,omitempty"`
	Known   []string `json:"known,omitempty"`
	// Trouble is why nothing of the run can be recorded, as on a full disk, and "" when it can be again.
	Trouble *string `json:"trouble,omitzero"`
}

// Numbered is a recorded event, as readers get it.
type Numbered struct {
	N     int64        `json:"n"`
	Seq   int64        `json:"seq"` // of the entry in the ledger
	At    time.Time    `json:"at"`
	Event wire.Raw     `json:"event"`
	Usage engine.Usage `json:"usage"`
}

// reported is the body of run.started, run.acted and run.completed, which is stored.
type reported struct {
	behalf.Of              // that of the run
	N         int64        `json:"n"`
	Event     wire.Raw     `json:"event"`
	Usage     engine.Usage `json:"usage"`
	// Spent is what this event added to the totals; applyReported adds it up again when
	// tables are rebuilt.
	Spent spent `json:"spent"` // since the event before
	// Unpriced says of a run that has ended that it used a model whose price nobody knows.
	Unpriced bool   `json:"unpriced,omitzero"`
	Said     *said  `json:"said,omitempty"` // of a metered run, when it has grown
	Session  string `json:"session"`        // when it became known
	Status   Status `json:"status"`         // when the run ended
	// Cause is why it was ended, if it did not end by itself.
	Cause  engine.Cause `json:"cause,omitzero"`
	Silent bool         `json:"silent,omitzero"` // the agent says nothing
	// Counts is what rules see of this event in recent, absent if nothing.
	Counts *counted `json:"counts,omitempty"`
}

// counted is for which agent an event is counted, and in which session.
type counted struct {
	Agent   string `json:"agent"` // its id
	Session string `json:"session"`
	Actions int    `json:"actions,omitempty"`
}

// said is what the CLI of a metered run says that it has used in all. It is shown and not counted.
type said struct {
	Tokens int64 `json:"tokens"`
	Nanos  int64 `json:"nano_usd"`
}

// metered is the body of run.metered: calls of a run that the proxy has carried.
type metered struct {
	behalf.Of       // that of the run
	Seq       int64 `json:"seq"` // of the proxy's entry
	Spent     spent `json:"spent"`
}

// stopped is the body of run.stopped.
type stopped struct {
	behalf.Of        // that of the run
	Reason    string `json:"reason"`
	// Cause is what it comes from; entries of version 0.1 do not say.
	Cause engine.Cause `json:"cause,omitzero"`
}

// maxPrompt and maxReason bound texts, in bytes.
const (
	maxPrompt = 1 << 20
	// maxReport bounds one report; a single event is never larger than that.
	maxReport = 30 << 20
	maxReason = 1000
	maxHosts  = 100
)

// opening checks a request and returns it as the body of run.opened.
func (n Request) opening() (opened, error) {
	b := opened{
		Engine: n.Engine, Prompt: n.Prompt, Dir: n.Dir, Model: n.Model, Budget: n.Budget, Supervised: n.Supervised,
		Host: n.Host, Launched: !n.Recorded, Origin: n.Origin, Metered: n.Metered, Limits: n.Limits, Mode: n.Mode,
		Worktree: n.Worktree,
		Named:    !n.Recorded && (n.Mode != "" || n.Supervised),
	}
	e, err := engine.Find(n.Engine)
	if err != nil {
		return b, err
	}
	switch {
	case n.Prompt == "" || len(n.Prompt) > maxPrompt:
		return b, fault.New(fault.InvalidPayload, "prompt should say what the agent is to do, in 1 to %d bytes.",
			maxPrompt).About("prompt")
	case n.Dir != "" && !filepath.IsAbs(n.Dir):
		return b, fault.New(fault.InvalidPayload, "dir should be an absolute path such as /srv/repo, and is %.200q.",
			n.Dir).About("dir")
	case n.Metered != "" && n.Metered != Proxy:
		return b, fault.New(fault.InvalidPayload, "metered should be proxy or absent, and is %.40q.", n.Metered).About("metered")
	case n.Budget.USD < 0 || n.Budget.Tokens < 0 || n.Budget.USD > maxUSD:
		return b, fault.New(fault.InvalidPayload, "budget should have usd from 0 to %d and tokens from 0; 0 is no limit.",
			int64(maxUSD)).About("budget")
	}
	for _, seconds := range []float64{n.Limits.Start, n.Limits.Idle, n.Limits.Total} {
		if !(seconds >= 0 && seconds <= maxSeconds) {
			return b, fault.New(fault.InvalidPayload, "limits should have start_seconds, idle_seconds and total_seconds from 0 to %d; "+
				"0 is what the configuration has.", maxSeconds).About("limits")
		}
	}
	if b.Sandbox = n.Sandbox != nil && *n.Sandbox; len(n.Hosts) > maxHosts {
		return b, fault.New(fault.InvalidPayload, "hosts should be %d at the most.", maxHosts).About("hosts")
	}
	for _, host := range n.Hosts {
		target, err := sandbox.Target(host)
		if err != nil {
			return b, err
		}
		b.Hosts = append(b.Hosts, target)
	}
	if n.Resume != "" {
		r, err := e.ReadResume(n.Resume)
		if err != nil {
			return b, err
		}
		b.Resume = r.Value
	}
	if n.Worktree && n.Resume != "" {
		return b, fault.New(fault.InvalidPayload, "A session goes on in the folder in which it began: name that as dir, without worktree.").
			About("worktree")
	}
	if n.Supervised && n.Mode == "" {
		b.Mode = engine.Supervised
	}
	if own := n.Mode == engine.Own && n.Recorded; b.Mode != "" && !own {
		if _, err := engine.ParseMode(string(b.Mode)); err != nil {
			return b, err
		}
	}
	if b.Supervised = b.Mode == engine.Supervised; n.Supervised && !b.Supervised {
		return b, fault.New(fault.InvalidPayload, "supervised is the mode supervised, and the mode is %s.", n.Mode).About("mode")
	}
	return b, nil
}

// maxUSD bounds an amount, in dollars, and keeps sums within an int64.
const maxUSD = 1e6

// nanos is dollars as whole nano-dollars, which add up without error.
func nanos(usd float64) int64 { return int64(math.Round(usd * 1e9)) }

// day is the name of a day in run_day. Days are those of UTC, on all nodes.
func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }
