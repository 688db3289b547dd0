// Package price knows what models cost and counts what their calls take: one table of prices,
// one shape of usage, and one way to make money of the two. The model proxy, runs, signals,
// budgets and pages ask here, so that they come to the same number.
//
// # Invariants
//
//   - Nothing is free because it is unknown. A model that the table does not have is priced as the row for
//     unknown models says (Unpriced), and whoever shows the cost shows that too.
//   - The kinds of tokens in a Usage are apart: no token is counted in two of them.
//   - A table is never changed once it is made. A change of prices makes the next version, and
//     costs that were recorded before stay as they are.
//
// It knows no protocol and nothing of budgets.
package price
