// Package slack shows gates in Slack: through an incoming webhook (Hook), which can only
// link, or as an app (App), whose messages have buttons and show the outcome in their
// place once there is one.
//
// Presses reach an app over Socket Mode, where we call Slack and need no public address, or
// over HTTP with Slack's signature. Either way Slack vouches for who pressed. On several
// nodes each holds a connection of its own; Slack gives a press to one of them, and a vote
// that arrives twice counts once.
//
// One press approves. Reject opens a form that asks for the reason; what is submitted there,
// by the person it was opened for, is the vote.
//
// What agents wrote is shown as plain text, with &, < and > escaped, so that it can
// neither link nor mention anybody. The response_url that Slack sends with a press is not
// used: whoever pressed is answered through the API, whose address is configured.
//
// Only five methods of Slack's API and the socket are used, and they are written out here
// (api.go, socket.go). slack-go/slack was tried and does not keep what deliveries and votes
// depend on: it takes an answer without "ok":true for a success, leaves presses
// unacknowledged if any of their fields has an unknown form, and reconnects without a pause.
package slack
