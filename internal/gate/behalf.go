package gate

import (
	"cmp"

	"signalbox/internal/policy"
)

// OnBehalf tells whoever decides for whom an agent acts. named is the user that the call names, which is only a claim
// if the user is not verified. There is nothing to tell of an agent that acts for nobody and claims nothing.
func OnBehalf(u policy.User, named string) []Fact {
	who := u.Name
	if u.Email != "" {
		who += " <" + u.Email + ">"
	}
	if named != "" && !u.Verified {
		who = cmp.Or(who, "nobody who is known") + "; the agent claims, without proof, to act for " + named
	}
	if who == "" {
		return nil
	}
	return []Fact{{Name: "on behalf of", Value: Excerpt(who)}}
}

// ForUser is a part of the digest of what is asked, so that an approval for one user is none for another. It is empty
// if the call names nobody, as calls did before there were users.
func ForUser(named string) []byte {
	if named == "" {
		return nil
	}
	return []byte("\x00" + named)
}
