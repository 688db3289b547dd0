package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

func (t *commands) newWork() *command.Command {
	c := &command.Command{
		Use: "work ROLE -- COMMAND [ARGUMENT...]", Short: "Run a command for each message to a role, and keep its deadlines",
		Long: "Waits for messages to the role and runs the command for each, with the message as JSON\n" +
			"on standard input. The message is acknowledged when the command has started, heartbeats\n" +
			"are sent while it lives, and if it fails that is escalated. It is stopped when the " +
			"task\nis held, ended, or given to another.\n\n" +
			"The command sends its answer itself, such as with `signalbox tasks result`. It finds\n" +
			"SIGNALBOX_TASK, SIGNALBOX_MESSAGE, SIGNALBOX_SERVER and SIGNALBOX_TOKEN in its\nenvironment.",
		Example: "  signalbox tasks work executor --key rs-amp-… -- codex exec -",
		Args:    command.AtLeast(2, "a role, and a command after --"),
	}
	w := &worker{commands: t}
	c.Flags().DurationVar(&w.every, "heartbeat", 5*time.Minute, "how often to send a heartbeat")
	c.Flags().DurationVar(&w.look, "look", 5*time.Second, "how often to look whether the task was held")
	c.Flags().BoolVar(&w.once, "once", false, "end after the first message")
	c.RunE = func(c *command.Command, args []string) error {
		w.role, w.command = amp.Role(args[0]), args[1:]
		if !slices.Contains(amp.AgentRoles, w.role) {
			return command.Usage("The role should be coordinator, executor or reviewer, and is %q.", args[0])
		}
		return w.run(c.Context())
	}
	return c
}

// worker runs a command for each message to a role.
type worker struct {
	*commands
	role        amp.Role
	command     []string
	every, look time.Duration
	once        bool
}

// pollFor is how long one look into the inbox waits.
const pollFor = "50s"

// again is the pause after a call that failed.
const again = 2 * time.Second

func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		box, err := w.Inbox(ctx, url.Values{"to": {string(w.role)}, "wait": {pollFor}, "limit": {"1"}})
		if fault.Is(err, fault.Unauthenticated) || fault.Is(err, fault.Forbidden) {
			return err
		}
		if err != nil {
			w.Err.Print("%v", err)
			clock.Pause(ctx, again)
			continue
		}
		for _, m := range box.Messages {
			w.handle(ctx, m)
			if w.once {
				return nil
			}
		}
	}
	return nil
}

// stopped is why a command is ended that did not end by itself.
type stopped struct{ why string }

func (s stopped) Error() string { return s.why }

// handle runs the command for one message.
func (w *worker) handle(ctx context.Context, m amp.Stored) {
	var head amp.Message
	if err := wire.UnmarshalPart(m.Message, &head); err != nil {
		w.Err.Print("a message cannot be read: %v", err)
		return
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	base, err := w.Address()
	if err != nil {
		w.Err.Print("%v", err)
		return
	}
	var tail lastBytes
	cmd := exec.CommandContext(ctx, w.command[0], w.command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(m.Message), w.Out.Writer, &tail
	cmd.Env = append(os.Environ(), "SIGNALBOX_TASK="+head.TaskID, "SIGNALBOX_MESSAGE="+head.MsgID,
		"SIGNALBOX_SERVER="+base)
	if w.Key != "" {
		cmd.Env = append(cmd.Env, "SIGNALBOX_TOKEN="+w.Key)
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		w.escalate(ctx, head.TaskID, fmt.Sprintf("The command for %s could not be started: %v", head.MsgID, err))
		w.pause(ctx)
		return
	}
	answer, err := w.Ack(ctx, head.MsgID, map[string]any{})
	if err != nil {
		stop(stopped{"the message could not be acknowledged"})
		_ = cmd.Wait()
		w.Err.Print("%s: %v", head.MsgID, err)
		w.pause(ctx)
		return
	}
	w.Err.Print("%s: working", head.MsgID)
	var watching sync.WaitGroup
	ended := make(chan struct{})
	watching.Go(func() { w.watch(ctx, head.TaskID, answer.Generation, ended, stop) })
	err = cmd.Wait()
	close(ended)
	watching.Wait()
	why, halted := errors.AsType[stopped](context.Cause(ctx))
	switch {
	case halted:
		w.Err.Print("%s: stopped, %s", head.MsgID, why)
	case err != nil:
		w.Err.Print("%s: %v", head.MsgID, err)
		w.escalate(context.WithoutCancel(ctx), head.TaskID,
			fmt.Sprintf("The %s's command for %s ended: %v. %s", w.role, head.MsgID, err, tail.text()))
	default:
		w.Err.Print("%s: done", head.MsgID)
	}
}

// pause keeps a message that cannot be worked on from being tried all the time.
func (w *worker) pause(ctx context.Context) { clock.Pause(context.WithoutCancel(ctx), again) }

// watch sends heartbeats while the command lives, and stops it when it must not go on.
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

// mustStop is why work on a task has to end, "" if it may go on.
func mustStop(r amp.Record, role amp.Role, generation int64) string {
	if r.Phase == amp.Terminated {
		return "the task was terminated"
	}
	if seat := r.Seats[role]; seat.Generation != generation || seat.Lost {
		return "the task was given to another"
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

// escalate says what went wrong; a worker that cannot even do that says so here.
func (w *worker) escalate(ctx context.Context, taskID, description string) {
	_, err := w.Escalate(ctx, taskID,
		Escalation{Role: w.role, Type: "unknown", Severity: "warning", Description: description})
	if err != nil {
		w.Err.Print("%s: it could not be escalated: %v", taskID, err)
	}
}

// lastBytes keeps the end of what a command says.
type lastBytes struct {
	mu   sync.Mutex
	data []byte
}

const maxTail = 1000

func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, p...)
	if len(l.data) > maxTail {
		l.data = slices.Clone(l.data[len(l.data)-maxTail:])
	}
	return len(p), nil
}

func (l *lastBytes) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(string(l.data), "?"))
}
