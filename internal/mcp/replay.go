package mcp

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
)

const (
	// maxStreams and maxReplay bound what is kept of answers, on this node and of all agents, in streams and in bytes.
	maxStreams = 4096
	maxReplay  = 16 << 20
)

// replay keeps the last answers of sessions, for clients whose connection dropped. The oldest are forgotten first; a
// client that asks for one of those is told so. It is safe for concurrent use.
type replay struct {
	mu    sync.Mutex
	kept  []*stream // the oldest first
	bytes int
}

// stream is one answer, event by event.
type stream struct {
	session, id string
	events      [][]byte
}

// find is a stream, nil if it is not kept. The last ones are asked for most.
func (r *replay) find(session, id string) *stream {
	for _, s := range slices.Backward(r.kept) {
		if s.session == session && s.id == id {
			return s
		}
	}
	return nil
}

// Open begins a stream.
func (r *replay) Open(_ context.Context, session, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.find(session, id) == nil {
		r.kept = append(r.kept, &stream{session: session, id: id})
	}
	r.trim()
	return nil
}

// Append adds an event to a stream. What was forgotten stays so.
func (r *replay) Append(_ context.Context, session, id string, event []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.find(session, id); s != nil {
		s.events, r.bytes = append(s.events, event), r.bytes+len(event)
	}
	r.trim()
	return nil
}

// trim forgets the oldest streams until the rest is within the bounds.
func (r *replay) trim() {
	for len(r.kept) > maxStreams || r.bytes > maxReplay {
		r.bytes -= r.kept[0].size()
		r.kept = slices.Delete(r.kept, 0, 1)
	}
}

// size is how many bytes a stream has.
func (s *stream) size() (n int) {
	for _, event := range s.events {
		n += len(event)
	}
	return n
}

var errForgotten = errors.New("the answer is not kept any more")

// After are the events of a stream behind the one with this index.
func (r *replay) After(_ context.Context, session, id string, index int) iter.Seq2[[]byte, error] {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.find(session, id)
	if s == nil {
		return func(yield func([]byte, error) bool) { yield(nil, errForgotten) }
	}
	rest := slices.Clone(s.events[min(index+1, len(s.events)):])
	return func(yield func([]byte, error) bool) {
		for _, event := range rest {
			if !yield(event, nil) {
				return
			}
		}
	}
}

// SessionClosed forgets all streams of a session.
func (r *replay) SessionClosed(_ context.Context, session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = slices.DeleteFunc(r.kept, func(s *stream) bool {
		if s.session == session {
			r.bytes -= s.size()
			return true
		}
		return false
	})
	return nil
}
