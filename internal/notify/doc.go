// Package notify tells people of gates: in Slack, in Telegram, by e-mail, through ntfy,
// and programs through a webhook. Where a channel has buttons, a press is a vote.
//
// # Announcing
//
// A follower with a cursor of its own (follow.go) turns each gate.opened,
// gate.escalated and gate.resolved into one delivery per channel. In the same
// transaction it appends notice.queued, of which there is one per entry and channel, so
// that a follower that is killed and starts again queues nothing twice. The outbox sends
// in order and retries for as long as it takes. The message is made when it is sent
// (send.go), from the gate as it then is.
//
// A channel is told of what happens after it was configured. When that was is in the
// ledger (channel.added), so that old gates are not announced in a new channel.
//
// A step of a gate's ladder also goes to the people it asks (person.go), wherever they have
// a contact and a channel of that kind is configured: by e-mail, in a direct message of
// Slack or Telegram. So does the outcome, to everybody who was asked. Contacts are checked
// at every try: who is no longer an operator is told nothing.
//
// After the decision a channel shows the outcome in place of the buttons. For that the
// sender remembers by what the channel knows its message (deliver.Result.Reference).
//
// # Deciding
//
// There are buttons only under a message that shows all of a gate (text.go); else it says why
// there are none, and a press asks the same again. A button carries the gate, the action, and a
// code that binds both to the digest of what was shown (press.go). Whoever pressed it must be an
// operator by their contact
// (roster.ByContact), and votes as that operator through gate.Vote: the gate's rules hold
// as for any vote. A channel that asks for a reason first asks only people who may vote
// (Notifier.Refusal). A GET never decides, because programs follow links.
//
// # Secrets
//
// Tokens, and addresses that are as good as tokens, stay in the channel. A delivery's
// target is a name such as slack:C123, and no error repeats an address.
//
// Channels are sub-packages, one for each vendor, and the only ones that import that
// vendor's SDK. They know Message and Press, and nothing of ledgers. This package knows
// no vendor.
package notify
