package client

import (
	"cmp"
	"context"
	"encoding/json" // the client imports the standard library alone
	"fmt"
	"time"

	"signalbox/client/internal/strict"
)

// Heartbeat says that a run is alive (AMP 2.0).
type Heartbeat struct {
	AgentID string        // that of [WithAgent] when empty
	RunID   string        // of the run
	TTL     time.Duration // how long until the next one, at most; a minute if zero
}

// Pulse is the answer to a heartbeat. Stop the run if Halt is true.
type Pulse struct {
	Halt    bool          // an operator has halted the run, or suspended the agent
	Message string        // why
	Next    time.Duration // how long until the next heartbeat is due
}

// Heartbeat says that a run is alive, and returns whether it may go on. After an error it is not known;
// an agent that must not outrun its operators stops then.
func (c *Client) Heartbeat(ctx context.Context, h Heartbeat) (Pulse, error) {
	body, err := plainJSON(struct {
		Version string `json:"amp_version"`
		Type    string `json:"type"`
		AgentID string `json:"agent_id"`
		RunID   string `json:"run_id"`
		TTL     int64  `json:"ttl_s,omitempty"`
	}{"2.0", "heartbeat", cmp.Or(h.AgentID, c.agent), h.RunID, int64((h.TTL + time.Second - 1) / time.Second)})
	if err != nil {
		return Pulse{}, err
	}
	var p Pulse
	err = c.post(ctx, "/amp/heartbeat", body, func(r reply) (err error) {
		p, err = readPulse(r)
		return err
	})
	if err != nil {
		return Pulse{}, fmt.Errorf("heartbeat: %w", err)
	}
	return p, nil
}

// readPulse reads the answer to a heartbeat. Only an explicit "halt": false lets the run go on.
func readPulse(r reply) (Pulse, error) {
	members, err := strict.Object(r.body)
	if err != nil {
		return Pulse{}, &unreadableError{fmt.Sprintf("the answer %s is not a JSON object: %s", r.status, err)}
	}
	var halt *bool
	if err := json.Unmarshal(members["halt"], &halt); err != nil || halt == nil {
		return Pulse{}, &unreadableError{fmt.Sprintf("the answer %s does not say whether to halt", r.status)}
	}
	p := Pulse{Halt: *halt}
	_ = json.Unmarshal(members["message"], &p.Message) // for people; halt counts without it
	var seconds int64
	if json.Unmarshal(members["next_within_s"], &seconds) == nil && seconds > 0 && seconds <= maxBeat {
		p.Next = time.Duration(seconds) * time.Second
	}
	return p, nil
}

// maxBeat is the longest that a server waits for a heartbeat, in seconds.
const maxBeat = 24 * 60 * 60
