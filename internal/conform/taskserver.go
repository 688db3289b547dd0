package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// TaskServer is a host that is a server. The cases use agents that are made for them.
// Each case has a task of its own, so that a server can be checked twice.
type TaskServer struct {
	URL   string
	Token string // an admin's

	kit     Kit
	keys    map[string]string // of the agents, by what they are for
	names   []string
	planned bool      // the case wants plans to be approved
	taskID  string    // what T-2026-044 is in this case
	begun   time.Time // by the server's clock
	movable bool
	restore func(context.Context) error
}

var _ TaskHost = (*TaskServer)(nil)

// vectorTask is the task that the vectors are about. Send replaces it by the task of
// the case.
const vectorTask = "T-2026-044"

// planner is the coordinator whose plans a person has to approve, for the cases about
// that.
const planner = "planner"

// Open makes the agents, and puts rules in force for their dispatches. Call Close to
// undo both.
func (s *TaskServer) Open(ctx context.Context) error {
	s.kit = Kit{URL: s.URL, Token: s.Token, http: newHTTP(longest)}
	s.keys, s.restore = map[string]string{}, func(context.Context) error { return nil }
	round := strings.ToLower(rand.Text()[:8])
	// One agent for each role, by the label that names it, and the planner as a second
	// coordinator.
	for _, part := range []string{"coordinator", "executor", "reviewer", planner} {
		role := strings.Replace(part, planner, "coordinator", 1)
		name := "conform-" + part + "-" + round
		body, err := wire.Marshal(map[string]any{"name": name, "labels": map[string]string{"role": role}})
		if err != nil {
			return err
		}
		r, err := s.kit.ops(ctx, http.MethodPost, "/ops/agents", "application/json", body)
		if err != nil {
			return err
		}
		var made struct {
			Keys map[string]string `json:"keys"`
		}
		if err := wire.UnmarshalPart(r.body, &made); err != nil {
			return err
		}
		s.keys[part] = made.Keys["signal"]
		s.names = append(s.names, name)
	}
	r, err := s.kit.ops(ctx, http.MethodGet, "/ops/policy", "", nil)
	if err != nil {
		return err
	}
	// The planner's dispatches wait for a person, and the coordinator's do not, whatever
	// the policy says.
	with, err := prepend(r.body, []map[string]any{{
		"name": "conform-plan", "on": []string{"task"}, "then": "gate",
		"when": fmt.Sprintf("agent.name == %q", "conform-"+planner+"-"+round),
	}, {
		"name": "conform-task", "on": []string{"task"}, "then": "allow",
		"when": fmt.Sprintf("agent.name == %q", "conform-coordinator-"+round),
	}})
	if err != nil {
		return err
	}
	// Put back byte for byte, comments included.
	before := r.body
	number, err := s.kit.apply(ctx, with, strings.Trim(r.header.Get("ETag"), `"`))
	if err != nil {
		return err
	}
	s.restore = func(ctx context.Context) error { _, err := s.kit.apply(ctx, before, number); return err }
	return nil
}

// Close removes what Open has made. The tasks stay, as everything in a ledger does.
func (s *TaskServer) Close(ctx context.Context) error {
	// Set again before every call: a test restarts the server between steps, and its
	// address changes.
	s.kit.URL = s.URL
	s.end(ctx)
	err := s.restore(ctx)
	for _, name := range s.names {
		_, e := s.kit.ops(ctx, http.MethodDelete, "/ops/agents/"+name, "", nil)
		err = errors.Join(err, e)
	}
	return err
}

// clockAnswer is the server's clock.
type clockAnswer struct {
	Now     time.Time `json:"now"`
	Movable bool      `json:"movable"`
}

// end terminates the task of the case before, so that nobody's inbox stays full. A task
// that does not exist, or is over, is an error that does not matter.
func (s *TaskServer) end(ctx context.Context) {
	if s.taskID != "" {
		_, _ = s.kit.ops(ctx, http.MethodPost, "/amp/tasks/"+s.taskID+"/instructions", "application/json",
			[]byte(`{"action":"terminate"}`))
	}
}

// Begin implements TaskHost. A server without a clock to read cannot be moved, and its
// cases about time are skipped.
func (s *TaskServer) Begin(ctx context.Context, requirePlan bool) error {
	s.kit.URL = s.URL
	s.end(ctx)
	// A number of six digits is free on a server that has seen a few rounds; one that is
	// taken fails the case. It must not begin with the 044 of the cases, which are replaced by it.
	n, err := rand.Int(rand.Reader, big.NewInt(900_000))
	if err != nil {
		return err
	}
	s.planned, s.taskID = requirePlan, fmt.Sprintf("T-2026-%06d", 100_000+n.Int64())
	r, err := s.kit.call(ctx, http.MethodGet, "/ops/clock", nil, http.Header{"Authorization": {"Bearer " + s.Token}})
	if err != nil {
		return err
	}
	var c clockAnswer
	if r.http == http.StatusOK {
		if err := wire.UnmarshalPart(r.body, &c); err != nil {
			return err
		}
	}
	s.begun, s.movable = c.Now, c.Movable
	return nil
}

// MoveTo implements TaskHost, where the server's clock can be set forward.
func (s *TaskServer) MoveTo(ctx context.Context, seconds int64) error {
	// Cases in which no time passes run on any server.
	if seconds == 0 {
		return nil
	}
	if !s.movable {
		return CannotError("time passes in them, and the clock of the server cannot be set (clock.movable)")
	}
	s.kit.URL = s.URL
	body, err := wire.Marshal(map[string]any{"now": s.begun.Add(time.Duration(seconds) * time.Second)})
	if err == nil {
		_, err = s.kit.ops(ctx, http.MethodPut, "/ops/clock", "application/json", body)
	}
	return err
}

// Send implements TaskHost. The document goes out with the key of the role that it is
// from, and with the task of the case.
func (s *TaskServer) Send(ctx context.Context, by amp.Role, kind amp.Kind, raw []byte) (TaskAnswer, error) {
	raw = []byte(strings.ReplaceAll(string(raw), vectorTask, s.taskID))
	var d struct {
		From   string `json:"from"`
		AckOf  string `json:"ack_of"`
		TaskID string `json:"task_id"`
	}
	_ = wire.UnmarshalPart(raw, &d) // what cannot be read is sent all the same
	token := s.keys[d.From]
	switch {
	case by != "" && by != amp.Admin:
		token = s.keys[string(by)]
	// Instructions are an admin's, whoever they say they are from.
	case by == amp.Admin || d.From == "admin" || kind == amp.InInstruction:
		token = s.Token
	case s.planned && d.From == "coordinator":
		token = s.keys[planner]
	case token == "":
		token = s.keys["coordinator"]
	}
	path := map[amp.Kind]string{
		amp.InMessage: "/amp/messages", amp.InHeartbeat: "/amp/heartbeats",
		amp.InAck:         "/amp/messages/" + url.PathEscape(d.AckOf) + "/ack",
		amp.InInstruction: "/amp/tasks/" + url.PathEscape(d.TaskID) + "/instructions",
	}[kind]
	s.kit.URL = s.URL
	r, err := s.kit.call(ctx, http.MethodPost, path, raw,
		http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}})
	if err != nil {
		return TaskAnswer{}, err
	}
	return readTaskAnswer(r)
}

// readTaskAnswer reads an answer, and checks that its status agrees with its body.
func readTaskAnswer(r reply) (TaskAnswer, error) {
	var a struct {
		Record        string        `json:"record"`
		Status        string        `json:"status"`
		Layer         amp.Layer     `json:"layer"`
		Errors        []amp.Problem `json:"errors"`
		Warnings      []amp.Problem `json:"warnings"`
		OtherWarnings []amp.Problem `json:"x_warnings"`
	}
	if err := wire.UnmarshalPart(r.body, &a); err != nil {
		return TaskAnswer{}, fmt.Errorf("answered with %d and no JSON: %.200s", r.http, r.body)
	}
	switch {
	case a.Record == "error" && len(a.Errors) > 0:
		refusal := &amp.Refusal{Layer: a.Layer, Problems: a.Errors}
		// The status follows from the layer, by the protocol.
		if r.http != refusal.Status() {
			return TaskAnswer{}, fmt.Errorf("refused with %d, want %d: %v", r.http, refusal.Status(), refusal)
		}
		return TaskAnswer{Refusal: refusal, Warnings: a.OtherWarnings}, nil
	case a.Status == "accepted" && r.http == http.StatusAccepted, a.Status == "duplicate" && r.http == http.StatusOK:
		return TaskAnswer{Duplicate: a.Status == "duplicate", Warnings: a.Warnings}, nil
	}
	return TaskAnswer{}, fmt.Errorf("answered with %d: %.300s", r.http, r.body)
}

// Look implements TaskHost.
func (s *TaskServer) Look(ctx context.Context, taskID string) (TaskLook, error) {
	s.kit.URL = s.URL
	r, err := s.kit.ops(ctx, http.MethodGet,
		"/amp/tasks/"+url.PathEscape(strings.ReplaceAll(taskID, vectorTask, s.taskID)), "", nil)
	if err != nil {
		return TaskLook{}, err
	}
	var t amp.Record
	if err := wire.UnmarshalPart(r.body, &t); err != nil {
		return TaskLook{}, err
	}
	return TaskLook{Status: t.Status, Count: t.Count, Streak: t.Streak, Open: t.Open}, nil
}

// Settle implements TaskHost: a server takes a moment to do what is due.
func (s *TaskServer) Settle(ctx context.Context, fn func() error) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		err := fn()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
