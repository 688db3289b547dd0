package harness

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"signalbox/internal/harness/shape"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// decideBatch answers ahp/batch. All events are checked before the first is decided, so
// a batch that is refused has changed nothing (AHP-29). Answers have the order of the
// events.
func (h *Harness) decideBatch(ctx context.Context, c *Conn, who roster.Identity, params wire.Raw) (wire.Raw,
	*rpcError,
) {
	events, problem := h.parseBatch(ctx, c, who, params)
	if problem != nil {
		return nil, problem
	}
	for _, e := range events {
		if err := h.requireHandshake(ctx, c, who, e.Session); err != nil {
			return nil, err
		}
	}
	// AHP-32: the client waits for the whole batch no longer than for one call, so neither
	// do we.
	ctx, cancel := context.WithTimeout(ctx, h.holdTime())
	defer cancel()
	answers := make([]wire.Raw, len(events))
	places := make(chan int)
	var working sync.WaitGroup
	for range min(len(events), batchWidth) {
		working.Go(func() {
			for i := range places {
				answers[i] = h.decideInBatch(ctx, c, who, events[i])
			}
		})
	}
	for i := range events {
		places <- i
	}
	close(places)
	working.Wait()
	out := append([]byte(`{"decisions":[`), bytes.Join(rawBytes(answers), []byte(","))...)
	return append(out, "]}"...), nil
}

// batchWidth is how many events of a batch are decided at a time. They wait for the
// same commit, and perhaps for people, so one after another would take too long; it
// also bounds the goroutines that one message can start.
const batchWidth = 256

// rawBytes has the element type that bytes.Join takes.
func rawBytes(all []wire.Raw) [][]byte {
	out := make([][]byte, len(all))
	for i, r := range all {
		out[i] = r
	}
	return out
}

// parseBatch parses and checks all events of a batch, and decides about none.
func (h *Harness) parseBatch(ctx context.Context, c *Conn, who roster.Identity, params wire.Raw) ([]*Event,
	*rpcError,
) {
	var in struct {
		Events []wire.Raw `json:"events"`
	}
	_, err := readParams(params, shape.BatchParams)
	if err == nil {
		err = wire.UnmarshalPart(params, &in)
	}
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	events := make([]*Event, len(in.Events))
	for i, raw := range in.Events {
		if events[i], err = parseEvent(raw, nil); err != nil {
			return nil, refuse(codeParams, "Invalid params: %s", shape.Within(fmt.Sprintf("events.%d", i), err).Error())
		}
	}
	if len(events) > h.Config.BatchSize {
		return nil, refuse(codeParams, "Batch size %d exceeds configured limit %d", len(events), h.Config.BatchSize)
	}
	for _, e := range events {
		if err := h.checkEvent(ctx, c, who, e); err != nil {
			return nil, err
		}
		if !e.kind.batch {
			return nil, refuse(codeParams, "Event type %s cannot be batched because it does not return a generic Decision",
				e.Type)
		}
	}
	return events, nil
}

// decideInBatch decides about one event of a batch. If that fails, the event is blocked
// and the others go on (AHP-31). A notification is queued and allowed (AHP-30): the
// reference client expects as many decisions as it sent events.
func (h *Harness) decideInBatch(ctx context.Context, c *Conn, who roster.Identity, e *Event) wire.Raw {
	if !e.kind.blocking() {
		h.queueEvent(ctx, who, e)
		return wire.Raw(`{"decision":"allow"}`)
	}
	answer, err := h.decide(ctx, c, who, e)
	// Here the error wins over harness.on_failure: a batch has no place for an error of one
	// event.
	if err != nil {
		answer, _ = failureAnswer(e, "Handler error: "+err.Error()).encode(e, nil)
	}
	return answer
}
