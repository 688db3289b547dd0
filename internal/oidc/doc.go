// Package oidc verifies the tokens of providers of OpenID Connect. With such a token a user proves to this server that
// an agent acts for them, and an operator signs in to the dashboard.
//
// A provider is found by its issuer: it is asked once what it is (discovery), and for its keys when a token comes that
// none of the known ones has signed. Both calls have a short timeout and a bound on how often they are made, so that a
// provider that is down, or an agent that invents tokens, holds up nobody.
//
// # Invariants
//
// A token that cannot be verified proves nothing: every failure is an error, and no error lets anything through. What
// is believed of a token is the part that its issuer has signed. The text of a token is in no error and in no log.
//
// The package owns no table and knows nothing of users, agents and workspaces but their names in its configuration:
// whom a token stands for is found by the roster.
package oidc
