// Package bus is the local bus of AMP: the components of one agent, which are processes of one
// user on one machine, exchange messages over a Unix socket, in JSON-RPC 2.0, one message a line.
//
// A component registers under a name (bus.register), finds others (bus.discover), and sends to one
// (bus.send), to all (bus.broadcast) or to the subscribers of a topic (bus.publish). It sends a
// heartbeat, and is taken out when it has been silent for too long. The gateway (gateway.go) is a
// component inside the bus: it has the agent's folder (mailbox), sends mail with amp.send, and
// publishes mail that arrives to the topic amp.inbound.
//
// # A session
//
//	→ {"jsonrpc":"2.0","id":1,"method":"bus.register","params":{"name":"planner","role":"worker"}}
//	← {"jsonrpc":"2.0","result":{"status":"registered","heartbeat_interval_ms":10000,…},"id":1}
//	→ {"jsonrpc":"2.0","id":2,"method":"bus.subscribe","params":{"topic":"amp.inbound"}}
//	← {"jsonrpc":"2.0","result":{"status":"subscribed","topic":"amp.inbound"},"id":2}
//	← {"jsonrpc":"2.0","method":"bus.topic","params":{"topic":"amp.inbound","from":"gateway",…}}
//
// # What is promised
//
// Nothing is stored. A component that is not connected gets nothing, and one that does not read
// loses messages; no sender waits for it. Mail is the exception: it is on disk, in the inbox, before
// it is published.
//
// # Concurrency
//
// A connection has two goroutines: a reader, which also answers, and a writer with a bounded queue.
// Everything that connections share is behind Bus.mu, and nothing is written to a connection while
// it is held. Run owns all goroutines and waits for them.
//
// # Safety
//
// Whoever can open the socket is part of the agent. The socket is in a folder that only its user can
// enter; there is no other check. The bus knows nothing of providers.
package bus
