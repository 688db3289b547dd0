// Package scope is what may be done, as lists of words: email.send, email.* for all that begin with email., and * for
// everything. A user, an agent and a handoff each have such a list, and what is allowed is what all of them have.
//
// It owns the form of a scope and how lists are narrowed. It must not know who has one, nor what needs one.
package scope

import (
	"regexp"
	"slices"
	"strings"

	"signalbox/internal/fault"
)

// All stands for every scope.
const All = "*"

// most is how many scopes a list may have, and longest how long each may be, in bytes.
const (
	most    = 256
	longest = 128
)

var form = regexp.MustCompile(`^[a-z0-9]+([._:-][a-z0-9]+)*(\.\*)?$`)

// Check checks the form of a list.
func Check(scopes []string) error {
	if len(scopes) > most {
		return fault.New(fault.InvalidPayload, "There are %d scopes; the most is %d.", len(scopes), most).About("scopes")
	}
	for _, s := range scopes {
		if s != All && (len(s) > longest || !form.MatchString(s)) {
			return fault.New(fault.InvalidPayload, "A scope is lower-case words with dots between, such as email.send; "+
				"email.* has all that begin with email., and * is everything. This one is %.80q.", s).About("scopes")
		}
	}
	return nil
}

// Has reports whether a list includes a scope, which may itself end with a star.
func Has(scopes []string, wanted string) bool {
	return slices.ContainsFunc(scopes, func(s string) bool { return includes(s, wanted) })
}

// includes reports whether one scope includes another. email.* does not include email, nor email2.send.
func includes(s, wanted string) bool {
	prefix, all := strings.CutSuffix(s, All)
	return s == wanted || all && strings.HasPrefix(wanted, prefix)
}

// Common is what two lists have in common, of which nil has everything.
func Common(a, b []string) []string {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return Narrow(a, b)
}

// Narrow is what two lists have in common: of two scopes of which one includes the other, the narrower one. It never
// has what one of the lists has not.
func Narrow(a, b []string) []string {
	common := []string{}
	for _, x := range a {
		if Has(b, x) {
			common = append(common, x)
		}
	}
	for _, y := range b {
		if Has(a, y) {
			common = append(common, y)
		}
	}
	slices.Sort(common)
	return slices.Compact(common)
}
