package task

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/run/process"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// newWork is `work`: it makes an agent that works in turns, such as an agent CLI, keep the
// deadlines of the protocol (TSK-45).
func (t *commands) newWork() *command.Command {
	c := &command.Command{
		Use: "work ROLE -- COMMAND [ARGUMENT...]", Short: "Run a command for each message to a role, and keep its deadlines",
		Long: "Waits for messages to the role and runs the command for each, with the message as JSON\n" +
			"on standard input. The message is acknowledged when the command is about to start, which claims\n" +
			"it: of several workers one has it. Heartbeats are sent while the command lives. A command that\n" +
			"fails, or ends without an answer to its message, is escalated. It is stopped when the task is\n" +
			"held, ended, or given to another. What it writes is kept in a file.\n\n" +
			"The command sends its answer itself, such as with `signalbox tasks result`. It finds\n" +
			"SIGNALBOX_TASK, SIGNALBOX_MESSAGE, SIGNALBOX_SERVER and SIGNALBOX_TOKEN in its environment, in\n" +
			"SIGNALBOX_GENERATION the worker's lease, under which `signalbox tasks` sends its answer, and in\n" +
			"SIGNALBOX_DELEGATION the token of what was handed to the executor.",
		Example: "  signalbox tasks work executor --key rs-amp-… -- codex exec -",
		Args:    command.AtLeast(2, "a role, and a command after --"),
	}
	w := &worker{commands: t}
	c.Flags().DurationVar(&w.every, "heartbeat", 5*time.Minute, "how often to send a heartbeat")
	c.Flags().DurationVar(&w.look, "look", 5*time.Second, "how often to look whether the task was held")
	c.Flags().BoolVar(&w.once, "once", false, "end after the first message that it works on")
	c.Flags().IntVar(&w.parallel, "parallel", 1, "how many messages to work on at a time, each with a command of its own")
	c.Flags().StringVar(&w.keep, "output", "", "the folder where the output of commands is kept; by default one in the user's cache")
	c.RunE = func(c *command.Command, args []string) error {
		w.role, w.command = amp.Role(args[0]), args[1:]
		if !slices.Contains(amp.AgentRoles, w.role) {
			return command.Usage("The role should be coordinator, executor or reviewer, and is %q.", args[0])
		}
		if w.parallel < 1 || w.once && w.parallel > 1 {
			return command.Usage("--parallel takes a number from 1 on, and does not go with --once.")
		}
		if err := w.findKeep(); err != nil {
			return err
		}
		all, ctx := errgroup.WithContext(c.Context())
		for range w.parallel {
			all.Go(func() error { return w.run(ctx) })
		}
		return all.Wait()
	}
	return c
}

// worker runs a command for each message to a role. For each message it either claims it with an ack and supervises
// the command, or leaves the message in the inbox, where this worker or another finds it again. It never loses one.
type worker struct {
	*commands
	role    amp.Role
	command []string
	// every is how often a heartbeat is sent, look how often the task is checked for a hold.
	every, look time.Duration
	once        bool
	parallel    int
	keep        string // the folder of what commands write
}

// pollFor is how long one look into the inbox waits. It is less than the server's limit of 55 s.
const pollFor = "50s"

// again is the pause after something failed, so that a broken server or command is not tried in a
// busy loop.
const again = 2 * time.Second

// run handles messages until ctx ends. A key that is not accepted ends it, because waiting does
// not help; everything else is tried again.
func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		box, err := w.Inbox(ctx, api.Query{"to": w.role, "wait": pollFor, "limit": choice})
		if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden) {
			return err
		}
		if err != nil {
			w.Err.Print("%v", err)
			clock.Pause(ctx, again)
			continue
		}
		// One message at a time: what is not taken stays for other workers of the role. Workers that begin at different
		// ones do not all try to claim the same.
		tried := false
		for _, i := range mathrand.Perm(len(box.Messages)) {
			if worked := w.handle(ctx, box.Messages[i]); worked && w.once {
				return nil
			} else if tried = tried || worked; worked {
				break // the others may be gone by now
			}
		}
		if len(box.Messages) > 0 && !tried {
			w.pause(ctx) // all of them were others'
		}
	}
	return nil
}

// choice is how many messages of the inbox a worker chooses from.
const choice = 20

// stopped is why the worker ended a command that did not end by itself. It travels as the cause of
// the command's context.
type stopped struct{ why string }

func (s stopped) Error() string { return s.why }

// handle runs the command for one message. An ack means "received and begun", and an executor
// hears with its answer what was handed to it, so it is sent right before the command starts: once the
// command was found. If the ack is refused, such as by another agent's lease, nothing is started.
//
// On cancellation the command and what it has started gets SIGTERM, and five seconds later SIGKILL.
//
// It reports whether the message was this worker's to work on.
func (w *worker) handle(outer context.Context, m task.Waiting) bool {
	var head amp.Message
	if err := wire.UnmarshalPart(m.Message, &head); err != nil {
		w.Err.Print("a message cannot be read: %v", err)
		return false
	}
	// Cancelling it stops the command; the cause says why.
	ctx, stop := context.WithCancelCause(outer)
	defer stop(nil)
	base, err := w.Address()
	if err != nil {
		w.Err.Print("%v", err)
		return false
	}
	kept, err := w.keepOutput(head.TaskID, head.MsgID)
	if err != nil {
		w.Err.Print("%s: its output cannot be kept: %v", head.MsgID, err)
		w.pause(ctx)
		return false
	}
	defer func() { _ = kept.Close() }()
	var tail lastBytes
	cmd := w.newCommand(ctx, m.Message, kept, &tail)
	cmd.Env = append(cmd.Env, taskVariable+"="+head.TaskID, messageVariable+"="+head.MsgID, serverVariable+"="+base)
	// The message was not acknowledged, so another worker may do better. The admin should know.
	unstarted := func(err error) bool {
		w.escalate(outer, head.TaskID, fmt.Sprintf("The command for %s could not be started: %v", head.MsgID, err))
		w.pause(ctx)
		return true
	}
	if cmd.Err != nil {
		return unstarted(cmd.Err)
	}
	answer := w.claim(outer, head.MsgID)
	if answer == nil {
		return false
	}
	cmd.Env = append(cmd.Env, generationVariable+"="+strconv.FormatInt(answer.Generation, 10))
	if handed := cmp.Or(answer.Handoff, m.Handoff); handed != nil {
		cmd.Env = append(cmd.Env, process.Hand(handed.Token, base)...)
	}
	gone, err := process.Start(cmd)
	if err != nil {
		return unstarted(err)
	}
	w.Err.Print("%s: working; its output is kept in %s", head.MsgID, kept.Name())
	var watching sync.WaitGroup
	ended := make(chan struct{})
	watching.Go(func() { w.watch(ctx, head.TaskID, answer.Generation, ended, stop) })
	err = <-gone
	close(ended)
	watching.Wait()
	// A command that we stopped has not failed, and nobody is told that it did.
	if why, halted := errors.AsType[stopped](context.Cause(ctx)); halted {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind
		w.Err.Print("%s: stopped, %s", head.MsgID, why)
		return true
	}
	w.finish(outer, &head, answer.Generation, err, tail.text())
	return true
}

// newCommand is the command for a message. What it writes is shown and kept; tail has the end of its standard error.
func (w *worker) newCommand(ctx context.Context, message []byte, kept io.Writer, tail *lastBytes) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	cmd.Stdin = bytes.NewReader(message)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(w.Out.Exactly(), kept), io.MultiWriter(tail, kept)
	cmd.Env = os.Environ()
	// The command speaks with the same key. Without one it finds the operator's token as we did.
	if w.Key != "" {
		cmd.Env = append(cmd.Env, tokenVariable+"="+w.Key)
	}
	// SIGTERM, so that an agent can save its work; WaitDelay then kills it.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	// A command whose children keep its output open must not hang the worker.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// claim acknowledges a message, which claims it; nil if it is another's. A call without an answer may have claimed it,
// so it is made again under the same name until there is one.
func (w *worker) claim(ctx context.Context, msgID string) *task.Answer {
	name := rand.Text()
	var answer task.Answer
	err := w.insist(ctx, func(ctx context.Context) (err error) {
		answer, err = w.Ack(ctx, msgID, map[string]any{"x_claim": name})
		return err
	})
	switch {
	case fault.Is(err, fault.Code(amp.AuthRole)):
		return nil // another agent has it
	case err != nil:
		w.Err.Print("%s: %v", msgID, err)
		w.pause(ctx)
		return nil
	case answer.Claim != name:
		return nil // another process of this agent has it
	}
	return &answer
}

// insist makes a call again while the server is away. A worker that is told to end makes it once more.
func (w *worker) insist(ctx context.Context, call func(context.Context) error) error {
	for {
		err := call(context.WithoutCancel(ctx))
		if ctx.Err() != nil || !fault.Is(err, api.Unreachable) && !fault.Is(err, fault.StoreUnavailable) {
			return err
		}
		clock.Pause(ctx, again)
	}
}

// finish looks what became of a message whose command has ended. One that failed, or has not answered, leaves the task
// with nobody, which is escalated. If the lease is over, the task is another's, and an escalation would stop that one.
func (w *worker) finish(ctx context.Context, m *amp.Message, generation int64, failed error, said string) {
	var r amp.Record
	err := w.insist(ctx, func(ctx context.Context) (err error) {
		r, err = w.Find(ctx, m.TaskID, false)
		return err
	})
	// It has ended with exit code 0, and something that it started keeps its output open.
	if errors.Is(failed, exec.ErrWaitDelay) {
		failed = nil
	}
	over := leaseOver(r, w.role, generation)
	switch {
	case err == nil && over != "":
		w.Err.Print("%s: not this worker's any more, %s", m.MsgID, over)
	// a command that fails must not fail in silence. The end of its standard error says why.
	case failed != nil:
		w.Err.Print("%s: %v", m.MsgID, failed)
		w.escalate(ctx, m.TaskID, fmt.Sprintf("The %s's command for %s ended: %v. %s", w.role, m.MsgID, failed, said))
	case err != nil:
		w.Err.Print("%s: ended; whether it was answered is not known: %v", m.MsgID, err)
	case r.Unanswered(w.role, m.MsgID):
		w.Err.Print("%s: the command ended without an answer", m.MsgID)
		w.escalate(ctx, m.TaskID, fmt.Sprintf("The %s's command for %s ended with exit code 0 and has not answered. %s",
			w.role, m.MsgID, said))
	default:
		w.Err.Print("%s: done", m.MsgID)
	}
}

// pause keeps a message that cannot be worked on from being tried all the time. It waits even if
// the message's own context has ended.
func (w *worker) pause(ctx context.Context) { clock.Pause(context.WithoutCancel(ctx), again) }

// watch sends heartbeats while the command runs, and stops it when it must not go on. It returns
// when ended is closed. Errors of single calls are reported and outlived; only a clear answer of
// the server stops the command.
func (w *worker) watch(ctx context.Context, taskID string, generation int64, ended <-chan struct{},
	stop context.CancelCauseFunc,
) {
	beat, look := time.NewTicker(w.every), time.NewTicker(w.look)
	defer beat.Stop()
	defer look.Stop()
	for {
		select {
		case <-ended:
			return
		// The generation makes the server refuse if the task was given to another meanwhile.
		case <-beat.C:
			_, err := w.Heartbeat(ctx, taskID, "", generation)
			if fault.Is(err, fault.Code(amp.AuthRole)) || fault.Is(err, fault.Code(amp.WrongState)) {
				stop(stopped{"the task was given to another, or is over"})
			} else if err != nil {
				w.Err.Print("%s: the heartbeat failed: %v", taskID, err)
			}
		case <-look.C:
			if r, err := w.Find(ctx, taskID, false); err == nil {
				if why := mustStop(r, w.role, generation); why != "" {
					stop(stopped{why})
				}
			}
		}
	}
}

// mustStop is why work on a task has to end, "" if it may go on. A warning raised by the server
// holds the task but need not stop work: the late ack or heartbeat that it waits for may come from
// this very worker.
func mustStop(r amp.Record, role amp.Role, generation int64) string {
	if over := leaseOver(r, role, generation); over != "" {
		return over
	}
	for _, h := range r.Holds {
		for _, o := range r.Open {
			if o.ID == h.Cause && (o.Severity == "critical" || h.Scope == "party:"+string(role)) {
				return "the task is held (" + h.Kind + ")"
			}
		}
	}
	return ""
}

// leaseOver is why the task is no longer the worker's, "" if it is.
func leaseOver(r amp.Record, role amp.Role, generation int64) string {
	if r.Phase == amp.Terminated {
		return "the task was terminated"
	}
	// TSK-39: somebody else may be working on it already.
	if seat := r.Seats[role]; seat.Generation != generation || seat.Lost {
		return "the task was given to another"
	}
	return ""
}

// escalate reports what went wrong to the admin. A worker that cannot even do that says so
// on standard error.
func (w *worker) escalate(ctx context.Context, taskID, description string) {
	err := w.insist(ctx, func(ctx context.Context) error {
		_, err := w.Escalate(ctx, taskID,
			Escalation{Role: w.role, Type: "unknown", Severity: "warning", Description: description})
		return err
	})
	if err != nil {
		w.Err.Print("%s: it could not be escalated: %v", taskID, err)
	}
}
