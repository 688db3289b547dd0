// Package federation knows where mail goes that is not for this server: other providers, each
// with a domain and a key of its own, and other hosts of our own provider, which are a mesh.
//
// It finds providers (peers.go) and the host that has an agent (mesh.go), hands them messages
// (send.go), and verifies the calls that they make (verify.go). It remembers the keys of other
// providers' agents in the table mail_pin (pin.go).
//
// It must not know queues: package mail says which message goes where, records what became of
// it, and decides about what comes in. A header that names a provider or a host proves nothing;
// a provider signs with its key, and a host shows that it has the secret that both have.
package federation
