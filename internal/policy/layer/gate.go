package layer

import (
	"cmp"
	"slices"

	"signalbox/internal/policy"
)

// risks are the levels of risk, in order.
var risks = []string{"low", "medium", "high"}

// StrictestGate is a gate that asks for no less than each of the gates (PRX-26): the largest quorum, the
// earliest expiry, the highest risk, and only approvers whom every one names. It is false if no
// approver is left, so that nobody could decide.
func StrictestGate(gates ...*policy.GateSpec) (policy.GateSpec, bool) {
	all := *gates[0]
	for _, one := range gates[1:] {
		all.Quorum, all.RejectNeeds = max(all.Quorum, one.Quorum), min(all.RejectNeeds, one.RejectNeeds)
		all.Expires, all.GoodFor = earlier(all.Expires, one.Expires), earlier(all.GoodFor, one.GoodFor)
		all.RemindAfter = earlier(all.RemindAfter, one.RemindAfter)
		if all.Uses == policy.AnyUses || one.Uses != policy.AnyUses && one.Uses < all.Uses {
			all.Uses = one.Uses
		}
		if one.OnExpiry != policy.ExpiryApprove {
			all.OnExpiry = policy.ExpiryReject
		}
		if one.Presence != "" {
			all.Presence = one.Presence
		}
		if slices.Index(risks, one.Risk) > slices.Index(risks, all.Risk) {
			all.Risk = one.Risk
		}
		if len(all.Escalation) == 0 {
			all.Escalation = one.Escalation
		}
		if all.Approvers = commonApprovers(all.Approvers, one.Approvers); len(all.Approvers) == 0 {
			return all, false
		}
	}
	return all, true
}

// earlier is the smaller of two values, of which zero means none.
func earlier[T cmp.Ordered](a, b T) T {
	var none T
	if a == none || b != none && b < a {
		return b
	}
	return a
}

// commonApprovers are the approvers who are on both lists. An admin may do what an operator may. Names and roles
// are not compared, since the role of a named person is not known here: ann and [operator] have
// nobody in common.
func commonApprovers(a, b []string) (list []string) {
	has := func(of []string, who string) bool {
		return slices.Contains(of, who) || who == "admin" && slices.Contains(of, "operator")
	}
	for _, who := range slices.Concat(a, b) {
		if has(a, who) && has(b, who) && !slices.Contains(list, who) {
			list = append(list, who)
		}
	}
	return list
}
