// Package mcp lets agents that speak the Model Context Protocol use Signalbox: tools for
// the role that an agent plays in tasks, for asking for an approval, and for mail.
//
// A tool calls the method that a call of HTTP calls, as the agent whose key came with the
// request and within the same limits, so it may do what the agent may and nothing else, and
// what is refused there is refused here, with the same words. The tools exist once, on the
// server, at /mcp; the command on standard input and output hands messages on to there
// (Bridge). The package holds no state: it makes envelopes, ids and times, and hands on what
// comes back. It knows the SDK and what the services can do, and no database.
package mcp
