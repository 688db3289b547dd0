// Package run records the runs of agent CLIs: what each was asked, every event of it in
// order, what it used, and how it ended.
//
// # A run in a page
//
// A run is opened (POST /runs), and whoever watches its process reports the events
// (POST /runs/{id}/events), numbered from 1 without gaps; an event that was recorded
// already is passed over, so a report can be repeated. Each event is an entry of the
// ledger. Anybody who may reads them from any number on, and then as they come
// (GET /runs/{id}/events?after=N); the reader and the server may go away and come back.
//
// The process belongs to a supervisor, a process of its own: `signalbox run` in a
// terminal, or one that the server has started and that outlives it. The supervisor
// shows that it lives by asking for orders (POST /runs/{id}/pulse), which is also how it
// hears that the run is to stop and how it holds its session: one run at a time for each
// engine and session, on all nodes. A run whose supervisor is gone is completed by the
// server, so that every run has exactly one completed event, and it is the last.
//
// Budgets are of a run and of a day, in dollars and tokens. They are looked at in the
// transaction that records what was used; a run that has used up its own or the day's is
// told to stop.
//
// engine has what CLIs write, process what they are, record reports for a supervisor,
// vector has cases. The package imports the core and no other protocol.
package run
