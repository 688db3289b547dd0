package task

import (
	"context"
	"fmt"
	"time"

	"signalbox/internal/store"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Turn is where an agent has to act: messages that wait for it, and tasks that it holds and in which it has the turn.
type Turn struct {
	Yours    bool          `json:"your_turn"`
	Messages []TurnMessage `json:"messages"`
	Tasks    []TurnTask    `json:"tasks"`
	Pending  bool          `json:"pending"` // nothing came while the call waited; ask again
}

// TurnMessage is a message that waits for an agent, without its words.
type TurnMessage struct {
	MsgID  string   `json:"msg_id"`
	Type   amp.Type `json:"type"`
	TaskID string   `json:"task_id"`
	From   amp.Role `json:"from"`
}

// TurnTask is a task in which an agent has the turn.
type TurnTask struct {
	TaskID string `json:"task_id"`
	Status string `json:"task_status"`
}

// AwaitTurn waits until the caller has to act, and up to wait. A turn without a message follows from what the agent
// itself did, so that is looked at once; what others do comes as a message.
func (s *Tasks) AwaitTurn(ctx context.Context, p Party, limit int, wait time.Duration) (Turn, error) {
	out := Turn{Messages: []TurnMessage{}}
	var err error
	if out.Tasks, err = s.turns(ctx, p, limit); err != nil {
		return out, err
	}
	if len(out.Tasks) > 0 {
		wait = 0
	}
	box, err := s.Wait(ctx, p, p.Role, 0, limit, wait)
	if err != nil {
		return out, err
	}
	for _, m := range box.Messages {
		var envelope amp.Message
		if err := wire.UnmarshalPart(m.Message, &envelope); err != nil {
			return out, err
		}
		out.Messages = append(out.Messages, TurnMessage{envelope.MsgID, envelope.Type, envelope.TaskID, envelope.From})
	}
	out.Yours, out.Pending = len(out.Tasks)+len(out.Messages) > 0, box.Pending
	return out, nil
}

// turns are the tasks that an agent holds and in which it has the turn, among those that changed last.
func (s *Tasks) turns(ctx context.Context, p Party, limit int) ([]TurnTask, error) {
	out := []TurnTask{}
	open, err := store.All(s.core.DB.Reading(ctx), scanTask,
		"SELECT state FROM task WHERE workspace = $1 AND status NOT IN ('completed', 'terminated') "+
			"ORDER BY updated_at DESC, task_id DESC LIMIT $2", p.Workspace, wire.MaxPage)
	if err != nil {
		return out, store.Explain(err)
	}
	for i := range open {
		seat := open[i].Seats[p.Role]
		if open[i].HasTurn(p.Role) && seat.Agent == p.Identity.ID && !seat.Lost && len(out) < limit {
			out = append(out, TurnTask{open[i].ID, open[i].Status()})
		}
	}
	return out, nil
}

// NextID is an id that no task of the workspace has yet, in the year of now.
func (s *Tasks) NextID(ctx context.Context, p Party) (string, error) {
	year := s.core.Now().UTC().Year()
	last, err := store.All(s.core.DB.Reading(ctx), func(scan store.Scan) (id string, err error) { return id, scan(&id) },
		"SELECT task_id FROM task WHERE workspace = $1 AND task_id LIKE $2 "+
			"ORDER BY length(task_id) DESC, task_id DESC LIMIT 1",
		p.Workspace, fmt.Sprintf("T-%d-%%", year))
	number := 0
	if len(last) > 0 {
		_, err2 := fmt.Sscanf(last[0], fmt.Sprintf("T-%d-%%d", year), &number)
		if err == nil {
			err = err2
		}
	}
	return fmt.Sprintf("T-%d-%03d", year, number+1), store.Explain(err)
}
