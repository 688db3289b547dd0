// Package server turns a configuration into a running Signalbox: it opens the
// store, the ledger and the roster, mounts the routes of every package on one
// listener, and stops everything in the right order.
//
// It owns no state of its own. Adding a protocol is one line in core.go: its
// migrations, its projection and its routes.
package server
