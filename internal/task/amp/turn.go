package amp

// HasTurn reports whether a role has to act in a task without a message that waits for it, and may: the task is not
// held.
func (t *Task) HasTurn(role Role) bool { return t.hasTurn(role) && t.Stops(role) == nil }
