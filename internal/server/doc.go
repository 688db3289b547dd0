// Package server turns a configuration into a running Signalbox. It opens the store, the ledger, the services of the
// core and the protocols, mounts their routes on one listener, and stops everything in the right order.
//
// It owns no state and no rule. What needs two packages that must not know each other is here: mail about tasks
// (taskmail.go), prices for the proxy, runs that Telegram starts. A protocol is added with one entry in protocols.go.
//
// Order of the start: lock on the data folder, listener, database, ledger, roster, policy, gates, outbox, channels,
// protocols, timers, counters, dashboard. Each may use those before it. Nothing is written to the database before the
// port is ours. Order of the stop: streams end, calls in progress finish, followers of the ledger stop, and the
// ledger is the last, because all others write to it.
//
// There is no state at package level, so tests can run any number of servers in one process.
package server
