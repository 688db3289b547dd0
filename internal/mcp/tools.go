package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/fault"
	"signalbox/internal/task"
	"signalbox/internal/wire"
)

// object is JSON.
type object = map[string]any

// tool is one thing that an agent can do.
type tool struct {
	name, about string
	roles       []task.Role // nobody else has it; everybody when empty
	reads       bool        // changes nothing
	payload     string      // the schema whose fields it takes beside those here
	fields      object
	required    []string
	do          func(ctx context.Context, args object) (*sdk.CallToolResult, error)
}

// Fields that several tools take.
var (
	taskField = object{"type": "string", "pattern": "^T-[0-9]{4}-[0-9]{3,6}$", "description": "the task, such as T-2026-044"}
	noteField = object{"type": "string", "description": "what the others should know"}
	genField  = object{"type": "integer", "description": "the generation of your lease on the task, as amp_ack told you"}
)

func (s *server) tools() []tool { return append(s.taskTools(), s.mailTools()...) }

func (s *server) taskTools() []tool {
	c, e, r := task.Coordinator, task.Executor, task.Reviewer
	return []tool{
		{
			name: "amp_inbox", about: "The messages that wait for you and are not acknowledged. Waits up to 55 seconds for one; pending means that none came, so call it again. Reading is not acknowledging.",
			roles: task.AgentRoles, reads: true, fields: object{"wait_seconds": object{"type": "integer", "minimum": 0, "maximum": 55}, "after": object{"type": "integer", "minimum": 0, "description": "everything after this entry, acknowledged or not"}},
			do: func(ctx context.Context, args object) (*sdk.CallToolResult, error) {
				q := url.Values{"to": {string(s.me.Role)}, "limit": {"20"}}
				for name, of := range map[string]string{"wait": "wait_seconds", "after": "after"} {
					if v, ok := args[of]; ok {
						q.Set(name, fmt.Sprint(v))
					}
				}
				return s.send(ctx, http.MethodGet, "/amp/messages?"+q.Encode(), nil)
			},
		},
		{
			name: "amp_context", about: "A task as it stands with every message about it: dispatches, results, requests, verdicts, escalations and instructions.",
			roles: task.AgentRoles, reads: true, fields: object{"task_id": taskField}, required: []string{"task_id"},
			do: func(ctx context.Context, args object) (*sdk.CallToolResult, error) {
				return s.send(ctx, http.MethodGet, "/amp/tasks/"+url.PathEscape(fmt.Sprint(args["task_id"]))+"?messages=true", nil)
			},
		},
		{
			name: "amp_ack", about: "Acknowledge a message when you begin with it, or refuse it with a code such as AMP_E_BRANCH_PROTECTED.",
			roles:    task.AgentRoles,
			fields:   object{"msg_id": object{"type": "string"}, "refuse_code": object{"type": "string"}, "detail": object{"type": "string"}},
			required: []string{"msg_id"},
			do: func(ctx context.Context, args object) (*sdk.CallToolResult, error) {
				body := object{}
				if code, ok := args["refuse_code"].(string); ok && code != "" {
					body["status"], body["error"] = task.Refused, object{"code": code, "detail": fmt.Sprint(args["detail"])}
				}
				return s.send(ctx, http.MethodPost, "/amp/messages/"+url.PathEscape(fmt.Sprint(args["msg_id"]))+"/ack", body)
			},
		},
		{
			name: "amp_heartbeat", about: "Say that you still work on a task. At least every 30 minutes while it is your turn.",
			roles: task.AgentRoles, fields: object{"task_id": taskField, "note": noteField, "x_generation": genField}, required: []string{"task_id"},
			do: func(ctx context.Context, args object) (*sdk.CallToolResult, error) {
				return s.send(ctx, http.MethodPost, "/amp/heartbeats", args)
			},
		},
		s.message("amp_dispatch", "Give work to the executor: a new task, or again after a result or a reject.", task.TypeDispatch, c),
		s.message("amp_result", "Report the result of a subtask. What you cannot verify is null, not true.", task.TypeResult, e),
		s.message("amp_review_request", "Ask the reviewer to judge a complete result.", task.TypeRequest, c),
		s.message("amp_verdict", "Decide the open review, criterion by criterion.", task.TypeVerdict, r),
		s.message("amp_escalate", "Tell the admin, a person, what cannot be solved without them. Never fail in silence.", task.TypeEscalation, task.AgentRoles...),
		{
			name: "request_approval", about: "Ask a person to approve an action before you take it, and wait up to 55 seconds. If it is still pending, call it again with the same run_id and request_id.",
			fields: object{
				"run_id": object{"type": "string", "minLength": 1, "description": "what you are working on"}, "request_id": object{"type": "string", "minLength": 1, "description": "this request among those of the run"},
				"summary": object{"type": "string", "minLength": 1}, "proposed_action": object{"type": "string", "minLength": 1},
			},
			required: []string{"run_id", "request_id", "summary", "proposed_action"},
			do:       s.approval,
		},
	}
}

// message is a tool that sends one of the five: it takes the payload's own fields.
func (s *server) message(name, about string, kind task.Type, roles ...task.Role) tool {
	return tool{
		name: name, about: about, roles: roles, payload: string(kind), fields: object{"task_id": taskField}, required: []string{"task_id"},
		do: func(ctx context.Context, args object) (*sdk.CallToolResult, error) {
			taskID := fmt.Sprint(args["task_id"])
			delete(args, "task_id")
			payload, err := wire.EncodeData(args)
			if err != nil {
				return nil, err
			}
			raw, err := task.Compose(kind, s.me.Role, taskID, payload, 0, s.now())
			if err != nil {
				return nil, err
			}
			return s.send(ctx, http.MethodPost, "/amp/messages", wire.Raw(raw))
		},
	}
}

// schema is what a tool takes: the payload's schema, complete in itself, with the fields
// beside it.
func (t tool) schema() (object, error) {
	out := object{"type": "object", "properties": object{}, "additionalProperties": false}
	if t.payload != "" {
		if err := readSchema(t.payload, out); err != nil {
			return nil, err
		}
		common := object{}
		if err := readSchema("common", common); err != nil {
			return nil, err
		}
		out["$defs"] = common["$defs"]
	}
	properties, _ := out["properties"].(object)
	for name, field := range t.fields {
		properties[name] = field
	}
	required, _ := out["required"].([]any)
	for _, name := range t.required {
		required = append(required, name)
	}
	if required != nil {
		out["required"] = required
	}
	for _, name := range []string{"$schema", "$id", "title", "x-amp-error"} {
		delete(out, name)
	}
	return out, nil
}

// readSchema reads a schema of the protocol; what it has in common stands in itself.
func readSchema(name string, into object) error {
	text, err := task.Schema(name)
	if err != nil {
		return err
	}
	return wire.UnmarshalPart([]byte(strings.ReplaceAll(string(text), `"common.json#/`, `"#/`)), &into)
}

// handle reads the arguments and calls the tool. What is wrong is told to the model, who
// can repair it.
func (t tool) handle(schema object) sdk.ToolHandler {
	properties, _ := schema["properties"].(object)
	required, _ := schema["required"].([]any)
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		args := object{}
		if len(req.Params.Arguments) > 0 {
			data, err := wire.Data(req.Params.Arguments)
			if err != nil {
				return wrong(fault.From(err).Message), nil // the model hears it
			}
			var ok bool
			if args, ok = data.(object); !ok {
				return wrong("The arguments should be a JSON object."), nil
			}
		}
		for _, name := range required {
			if _, ok := args[fmt.Sprint(name)]; !ok && t.payload == "" { // the server tells of payloads, with an example
				return wrong(fmt.Sprintf("The argument %q is missing.", name)), nil
			}
		}
		for name := range args {
			if _, ok := properties[name]; !ok && t.payload == "" {
				return wrong(fmt.Sprintf("The argument %.40q is not known.", name)), nil
			}
		}
		out, err := t.do(ctx, args)
		if err != nil {
			return wrong("The call failed: " + err.Error()), nil //nolint:nilerr // the model hears it, and may try again
		}
		return out, nil
	}
}

func wrong(text string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: true}
}

// send makes a call and hands its answer on.
func (s *server) send(ctx context.Context, method, path string, body any) (*sdk.CallToolResult, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = wire.EncodeData(body); err != nil {
			return nil, err
		}
	}
	status, answer, err := s.call(ctx, method, path, text)
	if err != nil {
		return nil, err
	}
	out := &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(answer)}}, IsError: status >= http.StatusBadRequest}
	if wire.Valid(answer) {
		out.StructuredContent = wire.Raw(answer)
	}
	return out, nil
}

// approval asks a person, and waits for them.
func (s *server) approval(ctx context.Context, args object) (*sdk.CallToolResult, error) {
	args["amp_version"], args["type"], args["agent_id"] = "2.0", "gate_request", s.me.Agent
	text, err := wire.EncodeData(args)
	if err != nil {
		return nil, err
	}
	status, answer, err := s.call(ctx, http.MethodPost, "/amp/gate_request", text)
	if err != nil {
		return nil, err
	}
	var a struct {
		Status string `json:"status"`
		GateID string `json:"gate_id"`
	}
	if status == http.StatusAccepted && wire.UnmarshalPart(answer, &a) == nil && a.Status == "pending" {
		return s.send(ctx, http.MethodGet, "/amp/gates/"+url.PathEscape(a.GateID)+"?wait=55s", nil)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: string(answer)}}, IsError: status >= http.StatusBadRequest}, nil
}
