// Package rules is the group of commands `policy`: files of rules checked, tested, replayed,
// applied, shown and explained. `check` and `test --policy` need no server. The others ask the
// server, which alone decides what is in force.
package rules

import "signalbox/internal/cli/command"

// New makes the group.
func New(a *command.App) *command.Command {
	return command.Group("policy", "The rules: init, check, test, replay, apply, show, explain, list layers",
		newInit(a), newCheck(a), newTest(a), newReplay(a), newApply(a), newShow(a),
		newExplain(a), newLayers(a))
}
