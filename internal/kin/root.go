package kin

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/proc"
)

// Root is a process that is known to be an agent's. It is made when a hook or a client connects,
// and stays for a day after the process has ended, for what it left behind.
type Root struct {
	proc.ID
	UID    int    `json:"uid"`
	Cgroup string `json:"cgroup"`
	// Below says that the process itself acts for a person, and what it starts is the agent's: the
	// supervisor of a run.
	Below bool `json:"below,omitzero"`
	// Left says that an agent has left the process behind: it was seen below another root before.
	Left    bool   `json:"left,omitzero"`
	Command string `json:"command"`
	Agent   string `json:"agent,omitzero"` // its id
	Session string `json:"session,omitzero"`

	workspace string // of the agent
	ended     uint64 // the first moment at which it was known to be gone, 0 while it lives
}

// newRoot reads what a root needs to know of a process.
func newRoot(p proc.Process) Root {
	return Root{ID: p.ID, UID: p.UID(), Cgroup: p.Cgroup(), Command: command(p.ID)}
}

// leaves is a root for a process that the agent of this one has left behind.
func (r *Root) leaves(p proc.Process) Root {
	one := newRoot(p)
	one.Left, one.Agent, one.Session, one.workspace = true, r.Agent, r.Session, r.workspace
	return one
}

// maxCommand is how much of a command line is kept, in bytes.
const maxCommand = 200

// command is the command line of a process, for people.
func command(id proc.ID) string {
	text := strings.ToValidUTF8(strings.Join(id.Args(), " "), "?")
	if len(text) > maxCommand {
		text = strings.ToValidUTF8(text[:maxCommand], "") + " …"
	}
	return text
}

// belongs reports whose a process is: line is the process and those that started it. self is our
// own process, whose children are not an agent's unless they are known to be. It returns nil for a
// process that belongs to no root.
func belongs(line []proc.Process, roots map[proc.ID]*Root, self int) *Root {
	for i, p := range line {
		r := roots[p.ID]
		switch {
		case r != nil && (i > 0 || !r.Below):
			return r
		case r != nil || p.PID == self:
			return nil
		}
	}
	for i := 0; i+1 < len(line); i++ {
		if r := leftBy(line[i], line[i+1], roots); r != nil {
			return r
		}
	}
	return nil
}

// leftBy is the root that may have left a process behind, nil if none can. A process that was
// detached has another parent than the one that started it: the first process of the machine, or
// one that adopts orphans, such as the service manager of a user, which works in another control
// group.
func leftBy(p, parent proc.Process, roots map[proc.ID]*Root) *Root {
	cgroup, uid, known := "", 0, false
	for _, r := range roots {
		if p.Start < r.Start || r.ended > 0 && p.Start > r.ended {
			continue
		}
		if !known {
			cgroup, uid, known = p.Cgroup(), p.UID(), true
		}
		if cgroup == r.Cgroup && uid == r.UID && (parent.PID == 1 || parent.Cgroup() != cgroup) {
			return r
		}
	}
	return nil
}

// client is the process that speaks through a connection: the peer, or the process that has started
// the peer as its hook. ok is false if nobody but a person at a prompt has started it. line is the
// peer and those that started it.
func client(line []proc.Process) (found proc.Process, ok bool) {
	if len(line) == 0 {
		return proc.Process{}, false
	}
	own := line[0].Args()
	if !isPipe(own) {
		return line[0], true
	}
	i := 0
	for i+1 < len(line) && runs(line[i+1].Args(), own) {
		i++
	}
	switch {
	case i+1 < len(line) && !typed(line[i], line[i+1]):
		return line[i+1], true
	case i > 0: // a person has typed an agent that has the call of its harness in its own command line
		return line[i], true
	}
	return proc.Process{}, false
}

// isPipe reports whether a command line is that of a program that speaks for who started it:
// `signalbox hook NAME`, or `signalbox harness stdio`.
func isPipe(args []string) bool {
	for i := 1; i+1 < len(args); i++ {
		if args[i] == "hook" || args[i] == "harness" && args[i+1] == "stdio" {
			return true
		}
	}
	return false
}

// runs reports whether a process is what a CLI has started for a call of its hook: a program that runs
// another, such as timeout, with the call at its end, or a shell with the call in the text that follows -c.
func runs(args, hook []string) bool {
	if at := len(args) - len(hook); at > 0 && slices.Equal(args[at:], hook) {
		return true
	}
	call := strings.Join(hook, " ")
	for i := 1; i+1 < len(args); i++ {
		if strings.HasPrefix(args[i], "-") && strings.HasSuffix(args[i], "c") &&
			strings.Contains(strings.ReplaceAll(args[i+1], "'", ""), call) {
			return true
		}
	}
	return false
}

// typed reports whether a person has typed a command at the prompt of a shell. Such a shell leads
// its session, and has made the command the foreground of its terminal.
func typed(p, shell proc.Process) bool {
	return p.Terminal != 0 && p.Group == p.Foreground && shell.PID == shell.Session && shell.Group != p.Group
}

// String is the process for people.
func (r *Root) String() string { return strconv.Itoa(r.PID) + " (" + r.Command + ")" }

// above are the processes that have started this one, and this one itself.
func above() map[proc.ID]bool {
	all := map[proc.ID]bool{}
	for _, p := range proc.Line(os.Getpid()) {
		all[p.ID] = true
	}
	return all
}

// Suspect reports whether a process may have been started by the agent that has started us as its
// hook: then it is no server to be asked. It needs no server and no ledger.
func Suspect(pid int) bool {
	own := proc.Line(os.Getpid())
	agent, ok := client(own)
	if !ok || slices.ContainsFunc(own, func(p proc.Process) bool { return p.PID == pid }) {
		return false
	}
	r := newRoot(agent)
	line := proc.Line(pid)
	return len(line) == 0 || belongs(line, map[proc.ID]*Root{r.ID: &r}, 0) != nil
}
