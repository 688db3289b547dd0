package harness

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// decideBatch answers ahp/batch. All events are checked before the first is decided, so a batch
// that is refused has changed nothing.
func (h *Harness) decideBatch(ctx context.Context, c *Conn, who roster.Identity, params wire.Raw) (wire.Raw,
	*rpcError,
) {
	events, problem := h.parseBatch(c, params)
	if problem != nil {
		return nil, problem
	}
	for _, e := range events {
		if err := h.requireHandshake(ctx, c, who, e.Session); err != nil {
			return nil, err
		}
	}
	// The whole batch is held no longer than one call.
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

// batchWidth is how many events of a batch are decided at a time: they wait for the same
// commit, and perhaps for people.
const batchWidth = 256

func rawBytes(all []wire.Raw) [][]byte {
	out := make([][]byte, len(all))
	for i, r := range all {
		out[i] = r
	}
	return out
}

func (h *Harness) parseBatch(c *Conn, params wire.Raw) ([]*Event, *rpcError) {
	var in struct {
		Events []wire.Raw `json:"events"`
	}
	_, err := readParams(params, batchParams)
	if err == nil {
		err = wire.UnmarshalPart(params, &in)
	}
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	events := make([]*Event, len(in.Events))
	for i, raw := range in.Events {
		if events[i], err = parseEvent(raw, nil); err != nil {
			return nil, refuse(codeParams, "Invalid params: %s", within(fmt.Sprintf("events.%d", i), err).Error())
		}
	}
	if len(events) > h.Config.BatchSize {
		return nil, refuse(codeParams, "Batch size %d exceeds configured limit %d", len(events), h.Config.BatchSize)
	}
	for _, e := range events {
		if err := h.checkEvent(c, e); err != nil {
			return nil, err
		}
		if !e.kind.batch {
			return nil, refuse(codeParams, "Event type %s cannot be batched because it does not return a generic Decision",
				e.Type)
		}
	}
	return events, nil
}

// decideInBatch decides about one event of a batch. If that fails, the event is blocked and the
// others go on.
func (h *Harness) decideInBatch(ctx context.Context, c *Conn, who roster.Identity, e *Event) wire.Raw {
	if !e.kind.blocking() {
		h.queueEvent(ctx, who, e)
		return wire.Raw(`{"decision":"allow"}`)
	}
	answer, err := h.decide(ctx, c, who, e)
	if err != nil {
		answer, _ = failureAnswer(e, "Handler error: "+err.Error()).encode(e, nil)
	}
	return answer
}
