package amp

// The rules of version 0.1 for plans, for replays of its entries (World.ByRisk): an approval covered
// the task up to a risk, whatever was dispatched. What they refused is not among the entries.

// approveByRisk is what a rule that allowed a dispatch did: it approved the task for every risk.
func (s *step) approveByRisk() {
	if s.w.PlanOK {
		s.t.PlanApproved, s.t.PlanRisk, s.t.PlanAsked = true, Risks[len(Risks)-1], false
	}
}

// decideByRisk approves the task for the risk that was asked for, every risk if none was, or takes
// that back.
func (s *step) decideByRisk(action string) {
	risk := s.t.PlanRisk
	if risk == "" {
		risk = Risks[len(Risks)-1]
	}
	s.t.PlanApproved, s.t.PlanRisk, s.t.PlanAsked = true, risk, false
	if action == "reject_plan" {
		s.t.PlanApproved, s.t.PlanRisk = false, ""
	}
}

// askByRisk asks once for each level of risk.
func (s *step) askByRisk(risk string) {
	if !s.t.PlanAsked || rank(risk) > rank(s.t.PlanRisk) {
		s.t.PlanAsked, s.t.PlanApproved, s.t.PlanRisk, s.out.AskPlan = true, false, risk, true
	}
}
