package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// RunOptions say what is known of a run before it begins. All fields may be left out.
type RunOptions struct {
	AgentID   string // that of [WithAgent] if empty
	RunID     string // a new one if empty; set it to resume a run and find its decisions again
	ProjectID string // that of [WithProject] if empty
	Summary   string // what the run does; [Run.SetSummary] can replace it
	Model     string // the one with the most tokens if empty
	Metadata  map[string]any
	// ReportTimeout is how long reporting the end may take, 30 seconds if zero. It counts after the
	// run, also if the run's ctx has ended.
	ReportTimeout time.Duration
}

// Run is a run that is under way. [Client.Run] makes it and passes it to the work; it ends when the work
// returns, and is reported then. Its methods may be called by many goroutines, and not after the
// work has returned.
type Run struct {
	client  *Client
	options RunOptions
	started time.Time

	mu        sync.Mutex
	summary   string
	usage     map[string]usage
	artifacts []any
	metadata  map[string]any
	asked     int
}

type usage struct {
	Input  int64 `json:"input_tokens"`
	Output int64 `json:"output_tokens"`
}

// Run calls work and reports it: completed if it returns nil, interrupted if it returns a *[Rejected] or if
// ctx has ended, else failed, with the error as metadata.error_message. A panic is reported as a
// failure and goes on. Run returns nil if the work returned nil and its report was approved: a rule
// may reject a run's outcome, or have a person look at it first.
func (c *Client) Run(ctx context.Context, o RunOptions, work func(context.Context, *Run) error) error {
	o.RunID = cmp.Or(o.RunID, NewRunID())
	o.ReportTimeout = cmp.Or(o.ReportTimeout, 30*time.Second)
	r := &Run{
		client: c, options: o, started: time.Now(), summary: o.Summary, usage: map[string]usage{},
		metadata: map[string]any{},
	}
	maps.Copy(r.metadata, o.Metadata)
	returned := false
	defer func() {
		if returned {
			return
		}
		// The report must not hide the panic, so its own error is dropped.
		if p := recover(); p != nil {
			_, _ = r.report(ctx, Failed, "panic", fmt.Sprint(p))
			panic(p)
		}
		_, _ = r.report(ctx, Interrupted, "goexit", "The goroutine was ended.") // runtime.Goexit
	}()
	err := work(ctx, r)
	returned = true
	a, reporting := r.reportReturn(ctx, err)
	if reporting != nil {
		return errors.Join(err, fmt.Errorf("the run has ended, but reporting it failed: %w", reporting))
	}
	if err != nil {
		return err
	}
	return c.awaitApproval(ctx, a)
}

// reportReturn reports a run whose work has returned err.
func (r *Run) reportReturn(ctx context.Context, err error) (Answer, error) {
	_, rejected := errors.AsType[*Rejected](err)
	switch {
	case err == nil:
		return r.report(ctx, Completed, "", "")
	case rejected:
		return r.report(ctx, Interrupted, "rejected", err.Error())
	case ctx.Err() != nil:
		return r.report(ctx, Interrupted, "context", err.Error())
	}
	return r.report(ctx, Failed, "error", err.Error())
}

// ID is the run_id, by which operators find the run.
func (r *Run) ID() string { return r.options.RunID }

// SetSummary says what the run did, for an operator to read. It replaces the summary of RunOptions.
func (r *Run) SetSummary(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary = text
}

// AddUsage adds the tokens of one call of a model. The report has the sums, and their cost by the
// server's prices.
func (r *Run) AddUsage(model string, inputTokens, outputTokens int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.usage[model]
	r.usage[model] = usage{u.Input + max(0, inputTokens), u.Output + max(0, outputTokens)}
}

// AddArtifact adds something to show with the report, such as a [Text].
func (r *Run) AddArtifact(artifact any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.artifacts = append(r.artifacts, artifact)
}

// SetMetadata sets one member of the report's metadata.
func (r *Run) SetMetadata(name string, value any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metadata[name] = value
}

// Approve asks an operator to approve what the run is about to do, shows them the
// artifacts, and waits for the decision. It returns nil if it was approved and in no
// other case; see [Client.Gate].
func (r *Run) Approve(ctx context.Context, proposedAction string, artifacts ...any) error {
	r.mu.Lock()
	r.asked++
	request := GateRequest{
		AgentID: r.options.AgentID, RunID: r.options.RunID, ProjectID: r.options.ProjectID,
		// Numbered, so that a run that is started again with its old run_id finds the decisions that
		// were made, if it asks the same questions in the same order.
		RequestID: fmt.Sprintf("approve-%d", r.asked),
		Summary:   r.summaryText(), ProposedAction: proposedAction, Artifacts: artifacts,
	}
	r.mu.Unlock()
	return r.client.Gate(ctx, request)
}

// summaryText is a summary that the server accepts: not empty, and not too long. The caller holds mu.
func (r *Run) summaryText() string {
	return shorten(cmp.Or(strings.TrimSpace(r.summary), "A run without a summary"), 4000)
}

// report signals the end of the run. It does not end with ctx, which has often ended by then.
func (r *Run) report(ctx context.Context, status, code, message string) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.options.ReportTimeout)
	defer cancel()
	prices := r.client.currentPrices(ctx)
	r.mu.Lock()
	p := r.payload(prices)
	r.mu.Unlock()
	p.Status, p.CompletedAt = status, time.Now()
	if code != "" {
		p.Metadata["error_code"], p.Metadata["error_message"] = code, shorten(message, 2000)
	}
	return r.client.Signal(ctx, p)
}

// payload is the report of what was gathered so far. The caller holds mu.
func (r *Run) payload(prices Prices) Payload {
	p := Payload{
		AgentID: r.options.AgentID, RunID: r.options.RunID, ProjectID: r.options.ProjectID,
		Summary: r.summaryText(), Artifacts: slices.Clone(r.artifacts), StartedAt: r.started,
		Metadata: maps.Clone(r.metadata),
	}
	most := int64(-1)
	for _, model := range slices.Sorted(maps.Keys(r.usage)) {
		u := r.usage[model]
		p.InputTokens, p.OutputTokens = p.InputTokens+u.Input, p.OutputTokens+u.Output
		p.Cost = saturatingAdd(p.Cost, prices.Cost(model, u.Input, u.Output))
		if u.Input+u.Output > most {
			most, p.Model = u.Input+u.Output, model
		}
	}
	p.Model = cmp.Or(r.options.Model, p.Model, "none")
	if len(r.usage) > 1 {
		p.Metadata["models"] = maps.Clone(r.usage)
	}
	return p
}

// shorten cuts a text to so many characters, so that the server does not refuse the report for it.
func shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
