package task_test

import (
	"context"
	"testing"

	"signalbox/internal/protocol"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/amp"
)

// node is a process that takes tasks, with everything they need.
type node struct {
	*protocoltest.Node
	tasks    *task.Tasks
	operator roster.Identity
	parties  map[amp.Role]task.Party // one agent for each role, and the admin
}

// service is what a node runs: the tasks, or less.
type service = protocol.Service

func start(t testing.TB, address string, options ...func(*task.Options)) *node {
	t.Helper()
	return startAs(t, address, func(s *task.Tasks) service { return s }, options...)
}

func startAs(t testing.TB, address string, as func(*task.Tasks) service, options ...func(*task.Options)) *node {
	t.Helper()
	n := &node{
		Node:    protocoltest.New(t, address, protocoltest.On{Protocol: task.Protocol()}),
		parties: map[amp.Role]task.Party{},
	}
	o := task.Options{Policy: amp.Defaults()}
	for _, option := range options {
		option(&o)
	}
	n.tasks = task.New(n.Core, o)
	n.Start(as(n.tasks))
	n.operator = n.Operator("kim")
	for _, role := range amp.AgentRoles {
		n.parties[role] = n.addAgent(string(role), role)
	}
	n.parties[amp.Admin] = task.Party{Identity: n.operator, Role: amp.Admin, Workspace: "default", Transport: "http"}
	return n
}

// eachNode runs fn with a node on every database.
func eachNode(t *testing.T, fn func(t *testing.T, n *node)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) { fn(t, start(t, address)) })
}

func (n *node) addAgent(name string, role amp.Role) task.Party {
	n.T.Helper()
	who := n.Agent(name, "role", string(role))
	got, err := task.RoleOf(who)
	if err != nil || got != role {
		n.T.Fatalf("%s plays %q: %v", name, got, err)
	}
	return task.Party{Identity: who, Role: role, Workspace: "default", Transport: "http"}
}

// take sends a document as a party.
func (n *node) take(p task.Party, kind amp.Kind, raw []byte) (task.Answer, *task.ErrorRecord) {
	n.T.Helper()
	a, wrong, err := n.tasks.Take(context.Background(), p, kind, raw)
	if err != nil {
		n.T.Fatal(err)
	}
	return a, wrong
}

// want sends a document that should be taken, as the role that it is from.
func (n *node) want(status string, kind amp.Kind, raw []byte) task.Answer {
	n.T.Helper()
	return n.wantFrom(n.parties[fromOf(raw)], status, kind, raw)
}

func (n *node) wantFrom(p task.Party, status string, kind amp.Kind, raw []byte) task.Answer {
	n.T.Helper()
	a, wrong := n.take(p, kind, raw)
	if wrong != nil {
		n.T.Fatalf("refused: %+v", wrong.Errors)
	}
	if a.TaskStatus != status {
		n.T.Fatalf("the task is %s, want %s", a.TaskStatus, status)
	}
	return a
}

// refuse sends a document that should be refused.
func (n *node) refuse(code amp.Code, kind amp.Kind, raw []byte) *task.ErrorRecord {
	n.T.Helper()
	return n.refuseFrom(n.parties[fromOf(raw)], code, kind, raw)
}

func (n *node) refuseFrom(p task.Party, code amp.Code, kind amp.Kind, raw []byte) *task.ErrorRecord {
	n.T.Helper()
	a, wrong := n.take(p, kind, raw)
	if wrong == nil {
		n.T.Fatalf("taken, and should be refused with %s: %+v", code, a)
	}
	if wrong.Errors[0].Code != code {
		n.T.Fatalf("refused with %+v, want %s", wrong.Errors, code)
	}
	return wrong
}

func (n *node) status(id string) string {
	n.T.Helper()
	t, err := n.tasks.Task(context.Background(), "default", id)
	if err != nil {
		n.T.Fatal(err)
	}
	return t.Status()
}
