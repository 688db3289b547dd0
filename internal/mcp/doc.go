// Package mcp lets agents that speak the Model Context Protocol use Signalbox: tools for
// the role that an agent plays in tasks, for asking for an approval, and for mail.
//
// A tool calls the method that the HTTP call of the same purpose calls, as the agent whose
// key came with the request and within the same rate limits. So it may do what the agent may
// and nothing else, and a refusal has the same words. The arguments of a tool that sends a
// message are the payload's own JSON Schema; the tool makes the envelope.
//
// The tools exist once, on the server, at /mcp (Handler). `signalbox mcp` on standard input
// and output forwards messages there (Bridge), so a client never has another version of the
// tools than its server. Requests are independent of each other: there are no MCP sessions,
// and any node can answer any request.
//
// Every tool returns within a minute, because clients give up after that. A tool that waits
// for a person or a message answers "pending", and is called again.
//
// The package holds no state. It knows the SDK and what the services can do, and no database.
package mcp
