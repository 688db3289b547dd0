// Package homes keeps one owner for every address in a mesh: it knows which host an agent lives on.
//
// Hosts of a mesh have databases of their own, so no table can be unique for all of them. One host, the registrar,
// therefore decides: the first by its id of the hosts that share secrets (federation.Mesh.Registrar). Its ledger has
// an entry address.claimed for every address, and the first entry wins. The other hosts read these entries from it in
// their order and append them to their own ledgers, so that each knows on its disk who has which address, also while
// the registrar is away. Nobody else is believed about that (MSG-97).
//
//	register on B ── rehearse ── reserve at the registrar ── commit on B ── claim with the key
//	                                     └ told to every host that answers, before B answers
//
// An address is reserved without a key and claimed with one. A reservation whose registration failed is released; a
// claim with a key never moves to another host, whatever the registrar says, and its key changes only by a proof of
// the key before (MSG-98). A host that cannot reach the registrar asks the others, registers what none of them knows,
// and claims it when the registrar is back. Who was second is suspended and told, as an alarm too (MSG-99).
//
// # State
//
// The table mail_home follows from the entries address.claimed and address.released. What is in memory is when each
// host answered last, for operators.
//
// # Boundaries
//
// It knows no messages: package mail asks it where a message goes, and whether a host may send for an agent.
package homes
