// Package layer has several policies decide as one: that of the server, and beside it those of a
// workspace and of a user. It knows no storage and nobody who applies a policy; rulebook does.
//
// # The order
//
// The budgets of all layers come before the rules of any. Rules of the server's layer are tried first, then the user's, then the workspace's, and the
// first that matches decides; where none does, the strictest of their defaults applies.
//
// # Invariants
//
// What the server's layer decides by a rule no other layer changes. What the server's layer has
// as its default at a control point no other layer loosens, neither by a rule nor by a default:
// of the two the stricter applies. What goes on is what the server's layer has judged: no other
// layer writes into it. A tool needs the scopes of every layer, and no rule lets pass what a budget of any layer stops. A stack of the
// server's layer alone decides as that policy does, and costs nothing more.
package layer
