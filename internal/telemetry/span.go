package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/secret"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

const (
	// maxText is the longest text in a span, in bytes.
	maxText = 128
	// maxKnown is how many traces are remembered to have a root.
	maxKnown = 10_000
)

// clean is a text that an agent may have chosen: without credentials, every character visible, and cut.
func clean(text string) string {
	text = show.Text(secret.Hide(text[:min(len(text), 4*maxText)]))
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// span is one span, before it is one of the SDK's.
type span struct {
	name       string
	trace      trace.TraceID
	id, parent trace.SpanID
	kind       trace.SpanKind
	from, to   time.Time
	failed     string // why it is an error, "" if it is none
	attributes []attribute.KeyValue
	call       *meter.Called // the call of a model that it is
}

// add adds attributes.
func (s *span) add(all ...attribute.KeyValue) { s.attributes = append(s.attributes, all...) }

// text is an attribute that an agent may have chosen.
func text(key, value string) attribute.KeyValue { return attribute.String(key, clean(value)) }

// sum is what ids are made from.
func (t *Telemetry) sum(parts ...string) [sha256.Size]byte {
	return sha256.Sum256([]byte(t.ledger.Origin() + "\x00" + strings.Join(parts, "\x00")))
}

// traceID is the id of a trace of ours there.
func (t *Telemetry) traceID(workspace, name string) trace.TraceID {
	sum := t.sum("trace", workspace, name)
	return trace.TraceID(sum[:16])
}

// spanID is the id of a span of a trace.
func (t *Telemetry) spanID(parts ...string) trace.SpanID {
	sum := t.sum(append([]string{"span"}, parts...)...)
	return trace.SpanID(sum[:8])
}

// rootID is the id of the root of a trace.
func (t *Telemetry) rootID(workspace, name string) trace.SpanID {
	return t.spanID("root", workspace, name)
}

// spansOf are the spans that end with an entry, and the root of its trace if that begins with it.
func (t *Telemetry) spansOf(ctx context.Context, e *ledger.Entry) (all []span, err error) {
	if e.Kind == meter.KindCalled {
		return t.callSpans(ctx, e)
	}
	own, wanted, err := t.spanOf(ctx, e)
	if err != nil {
		return nil, err
	}
	if e.Trace != "" {
		root, begins, err := t.root(ctx, e, e.Trace)
		if err != nil {
			return nil, err
		}
		if begins {
			all = append(all, root)
		}
	}
	if wanted {
		all = append(all, own)
	}
	return all, nil
}

// root is the span below which all others of a trace are. It belongs to the first entry of the trace.
func (t *Telemetry) root(ctx context.Context, e *ledger.Entry, name string) (root span, begins bool, err error) {
	key := e.Workspace + "\x00" + name
	if t.known[key] {
		return root, false, nil
	}
	if t.looked[key] == 0 {
		first, err := t.ledger.Entries(ctx, ledger.Query{Workspace: e.Workspace, Trace: name, Limit: 1})
		if err != nil || len(first) == 0 {
			return root, false, err
		}
		t.looked[key] = first[0].Seq
	}
	if t.looked[key] != e.Seq {
		return root, false, nil
	}
	noun, _, _ := strings.Cut(e.Kind, ".")
	root = span{
		name: noun, trace: t.traceID(e.Workspace, name), id: t.rootID(e.Workspace, name), from: e.At, to: e.At,
	}
	root.add(text("signalbox.trace", name), text("signalbox.workspace", e.Workspace))
	return root, true, nil
}

// remember notes which traces have their root, once the collector has it. The memory is bounded; a trace that is
// forgotten is looked up.
func (t *Telemetry) remember() {
	for key := range t.looked {
		if len(t.known) >= maxKnown {
			clear(t.known)
		}
		t.known[key] = true
	}
}

// begin is the span of an entry, with what all spans have.
func (t *Telemetry) begin(e *ledger.Entry, traceName string, more ...string) span {
	s := span{from: e.At, to: e.At, kind: trace.SpanKindInternal}
	name := cmp.Or(traceName, fmt.Sprint("entry ", e.Seq, more))
	s.trace, s.id = t.traceID(e.Workspace, name), t.spanID(append([]string{fmt.Sprint(e.Seq)}, more...)...)
	if traceName != "" {
		s.parent = t.rootID(e.Workspace, traceName)
		s.add(text("gen_ai.conversation.id", traceName))
	}
	if agent, ok := strings.CutPrefix(e.Actor, "agent:"); ok {
		s.add(text("gen_ai.agent.name", agent))
	}
	s.add(text("signalbox.workspace", e.Workspace), text("signalbox.subject", e.Subject),
		attribute.String("signalbox.kind", e.Kind), attribute.Int64("signalbox.seq", e.Seq))
	return s
}

// ended are the kinds of entries with which something ends that began with the first entry about the same subject, and
// what it is called.
var ended = map[string]string{
	"run.completed": "invoke_agent", "message.acknowledged": "message", "message.expired": "message",
	"message.failed": "message", "message.rejected": "message", "delivery.succeeded": "delivery",
	"delivery.given_up": "delivery",
}

// failures are the kinds that are an error.
var failures = map[string]bool{"message.failed": true, "delivery.given_up": true}

// moments are the kinds of entries that are a span by themselves, without a length.
var moments = map[string]bool{
	"session.opened": true, "message.blocked": true, "run.stopped": true, "review.requested": true,
}

// spanOf is the span that ends with an entry, if one does.
func (t *Telemetry) spanOf(ctx context.Context, e *ledger.Entry) (s span, wanted bool, err error) {
	noun, verb, _ := strings.Cut(e.Kind, ".")
	what, ends := ended[e.Kind]
	switch {
	case e.Kind == "gate.resolved":
		return t.gateSpan(e)
	case noun == "step" && (verb == "allowed" || verb == "blocked" || verb == "modified" || verb == "deferred"):
		return t.stepSpan(e, verb), true, nil
	case ends:
		s = t.begin(e, e.Trace)
		s.name = what
		first, err := t.ledger.Entries(ctx, ledger.Query{Workspace: e.Workspace, Subject: e.Subject, Limit: 1})
		if err != nil {
			return s, false, err
		}
		if len(first) > 0 && first[0].Seq < e.Seq {
			s.from = first[0].At
		}
		if what == "invoke_agent" {
			s.add(attribute.String("gen_ai.operation.name", what))
		}
		if failures[e.Kind] {
			s.failed = e.Kind
		}
		return s, true, nil
	case noun == "task" || moments[e.Kind]:
		s = t.begin(e, e.Trace)
		s.name = e.Kind
		return s, true, nil
	}
	return s, false, nil
}

// gateSpan is the time that a gate has waited.
func (t *Telemetry) gateSpan(e *ledger.Entry) (s span, wanted bool, err error) {
	r, err := ledger.Read[gate.Resolution](e)
	if e.Body == nil || err != nil {
		return s, false, nil //nolint:nilerr // what cannot be read has no span; the counting says so
	}
	s = t.begin(e, e.Trace)
	s.name, s.from = "gate", time.UnixMicro(r.OpenedAt).UTC()
	s.add(text("signalbox.gate.protocol", r.Protocol), text("signalbox.gate.risk", r.Risk), text("signalbox.rule", r.Rule),
		attribute.String("signalbox.gate.status", string(r.Status)),
		attribute.String("signalbox.gate.cause", string(r.Cause)))
	return s, true, nil
}

// stepSpan is a step of an agent: a tool that it wanted to run, with what the policy said.
func (t *Telemetry) stepSpan(e *ledger.Entry, verdict string) span {
	var b struct {
		Type     string `json:"type"`
		Decision struct {
			Rule string `json:"rule"`
		} `json:"decision"`
	}
	_ = wire.UnmarshalPart(e.Body, &b) // an erased body has neither
	s := t.begin(e, e.Trace)
	s.name = "step"
	if b.Type == "pre_action" {
		tool := clean(e.Subject)
		s.name = "execute_tool " + tool
		s.add(attribute.String("gen_ai.operation.name", "execute_tool"), attribute.String("gen_ai.tool.name", tool))
	}
	s.add(attribute.String("signalbox.verdict", verdict), text("signalbox.rule", b.Decision.Rule))
	return s
}

// providers are the names of the conventions, where ours differ.
var providers = map[string]string{"google": "gcp.gemini", "gemini": "gcp.gemini"}

// operation is what a call asks a provider for.
func operation(call string) string {
	if strings.Contains(call, "/embeddings") {
		return "embeddings"
	}
	return "chat"
}

// callSpans are the calls of models in an entry. A call of a run belongs to the trace of the run.
func (t *Telemetry) callSpans(_ context.Context, e *ledger.Entry) (all []span, err error) {
	calls, ok := e.Value().(*meter.Calls)
	if !ok {
		calls = &meter.Calls{}
		if e.Body == nil || wire.UnmarshalPart(e.Body, calls) != nil {
			return nil, nil
		}
	}
	for i, c := range calls.Calls {
		s := t.begin(e, c.Run, "call", fmt.Sprint(i))
		s.call, s.kind = c, trace.SpanKindClient
		s.from = time.UnixMicro(c.At).UTC()
		s.to = s.from.Add(time.Duration(max(c.Took, 0)) * time.Microsecond)
		s.name = operation(c.Call) + " " + clean(c.Model)
		s.add(attribute.String("gen_ai.operation.name", operation(c.Call)),
			text("gen_ai.provider.name", cmp.Or(providers[c.Provider], c.Provider)), text("gen_ai.request.model", c.Model),
			text("gen_ai.response.model", c.Model), attribute.Int64("gen_ai.usage.input_tokens", c.InputTokens()),
			attribute.Int64("gen_ai.usage.output_tokens", c.OutputTokens()),
			attribute.Int("http.response.status_code", c.Status), text("signalbox.rule", c.Rule),
			attribute.Float64("signalbox.cost_usd", float64(c.Nanos)/1e9))
		if c.ID != "" {
			s.add(text("gen_ai.response.id", c.ID))
		}
		if c.Status >= 400 {
			s.failed = fmt.Sprint(c.Status)
			s.add(attribute.String("error.type", s.failed))
		}
		all = append(all, s)
	}
	return all, nil
}

// snapshots are spans as the exporter takes them.
func snapshots(spans []span, of *resource.Resource) []sdk.ReadOnlySpan {
	stubs := make(tracetest.SpanStubs, len(spans))
	for i := range spans {
		s := &spans[i]
		stub := tracetest.SpanStub{
			Name: s.name, SpanKind: s.kind, StartTime: s.from, EndTime: s.to, Attributes: s.attributes, Resource: of,
			InstrumentationScope: instrumentation.Scope{Name: "signalbox"},
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: s.trace, SpanID: s.id, TraceFlags: trace.FlagsSampled,
			}),
		}
		if s.parent.IsValid() {
			stub.Parent = trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: s.trace, SpanID: s.parent, TraceFlags: trace.FlagsSampled,
			})
		}
		if s.failed != "" {
			stub.Status = sdk.Status{Code: codes.Error, Description: s.failed}
		}
		stubs[i] = stub
	}
	return stubs.Snapshots()
}
