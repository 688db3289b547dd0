// Package meter counts what the calls of the model proxy took: the record of each call, what it cost, what a call may
// cost before it is made, and what is only known later, such as the results of a batch.
//
// It owns the entries about what was used (proxy.called, proxy.due, proxy.settled, proxy.filed, proxy.began), their
// tables, and the queue that writes them. It knows the forms of replies by package form, and nothing of rules, gates
// and connections.
//
// # Invariants
//
//   - Every call that a provider took is counted: by what it reports, or else by an estimate that is marked as one.
//   - What a batch may cost counts for budgets when it is made, and what it has cost takes the place of that when its
//     results come: each counts once, on whichever node and however often they are fetched.
//   - A name that an agent chooses, such as that of a model, makes no more than a few alarms.
package meter
