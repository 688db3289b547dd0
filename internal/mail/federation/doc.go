// Package federation exchanges mail with other servers: other providers, each with a domain and
// a key of its own, and other hosts of our own provider, which form a mesh.
//
// It discovers providers (peers.go), finds the host that has an agent (mesh.go), sends messages
// to both (send.go), verifies the calls that they make (verify.go), and pins the keys of their
// agents in the table mail_pin (pin.go).
//
// # Who is believed
//
// A header that names a provider or a host proves nothing. A provider signs its calls with the
// key of its discovery document (MSG-80), and vouches for agents of its own domain only. A host
// proves that it has the secret that both hosts were configured with (MSG-85), and may not speak
// for an agent that is registered here. The agents' own signatures are verified in both cases.
//
// # Boundaries
//
// It must not know queues. Package mail decides which message goes where, records the outcome,
// and decides about messages that arrive. What is discovered is cached in memory, on each node,
// and can be lost at any time.
package federation
