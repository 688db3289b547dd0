// Package mcp lets agents that speak the Model Context Protocol use Signalbox: tools for
// the role that an agent plays in tasks, for asking a person, and for mail.
//
// A tool calls the method that the HTTP call of the same purpose calls, as the agent whose
// key came with the request and within the same rate limits. So it may do what the agent may
// and nothing else. Its arguments are what only the agent knows, in schemas that the APIs of
// models accept (field.go); ids, times and references are filled in (amp.Fill, amp.Compose). A
// refusal names the arguments (refusal.go). What other agents wrote is set apart from what the
// server says (foreign.go).
//
// The tools exist once, on the server, at /mcp (Handler). `signalbox mcp` on standard input
// and output forwards messages there (Bridge), so a client never has another version of the
// tools than its server. A session keeps only the answers that a client may have missed, and
// its id is signed: any node can answer any request, before and after a restart (session.go).
//
// Every tool returns within a minute, because clients give up after that. A tool that waits
// for a person or a message answers "pending", and is called again; meanwhile it sends progress
// to a client that asked for it.
//
// The package knows the SDK and what the services can do, and no database.
package mcp
