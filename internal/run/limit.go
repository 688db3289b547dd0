package run

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/run/engine"
)

// What holds a run for which nobody has named a limit, where people start runs without saying one, as in a chat.
const (
	defaultUSD  = 2
	defaultTime = 30 * time.Minute
)

// Lasting is a number of seconds as people read it.
func Lasting(seconds float64) string {
	switch whole := int64(seconds); {
	case whole%3600 == 0 && whole > 0:
		return fmt.Sprintf("%d h", whole/3600)
	case whole%60 == 0 && whole > 0:
		return fmt.Sprintf("%d min", whole/60)
	}
	return fmt.Sprintf("%g s", seconds)
}

// checkLimited refuses a run that the server is to start and that nothing would end (RUN-39).
func (s *Runs) checkLimited(ctx context.Context, workspace string, n Request, b opened) error {
	if !b.Launched || b.Budget != (Budget{}) {
		return nil
	}
	e, err := engine.Find(b.Engine)
	if err != nil {
		return err
	}
	held := b
	held.Budget = Budget{USD: defaultUSD}
	_, boundless := s.checkBudget(ctx, workspace, n, held)
	switch {
	case boundless == nil:
		return fault.New(fault.InvalidPayload, `Say how much the run may use, such as {"budget":{"usd":2}} or `+
			`{"budget":{"tokens":500000}}, or set it for all runs: `+"`signalbox config set runs.budget_usd 2`.").About("budget")
	case b.Limits.Total == 0 && s.Daily == (Budget{}):
		return fault.New(fault.InvalidRequest, "%s cannot be held to a budget here, so this server starts it only with a time limit, "+
			`such as {"limits":{"total_seconds":1800}}, or while a day has a budget: `+
			"`signalbox config set runs.daily_usd 20`, or runs.daily_tokens.", e.Name).About("budget")
	}
	return nil
}

// Limited is a request with a limit: its own or the configuration's, else a default. It is a budget where the engine
// can be held to one, and a time elsewhere. says is that in a sentence, for whoever starts the run.
func (s *Runs) Limited(ctx context.Context, who roster.Identity, n Request) (limited Request, says string) {
	b, err := n.opening()
	if err != nil {
		return n, "" // Open refuses it
	}
	given := n.Budget.within(s.Budget)
	b.Budget = given
	if given == (Budget{}) {
		b.Budget.USD = defaultUSD
	}
	_, err = s.checkBudget(ctx, cmp.Or(who.Workspace, roster.DefaultWorkspace), n, b)
	switch {
	case err == nil && given == (Budget{}):
		n.Budget = b.Budget
		return n, fmt.Sprintf("It is stopped at $%.2f. `signalbox config set runs.budget_usd 5` sets another budget.", n.Budget.USD)
	case err == nil && given.USD > 0:
		return n, fmt.Sprintf("It is stopped at $%.2f.", given.USD)
	case err == nil:
		return n, fmt.Sprintf("It is stopped at %d tokens.", given.Tokens)
	case given == (Budget{}) && n.Limits.Total == 0:
		n.Limits.Total = defaultTime.Seconds()
		if s.Limits != nil {
			if most := s.Limits(b.Engine).Total; most > 0 {
				n.Limits.Total = min(n.Limits.Total, most)
			}
		}
		fallthrough
	default: // Open says what is wrong with a budget that was given
		return n, fmt.Sprintf("%s cannot be held to a budget here, so it is stopped after %s.", b.Engine, Lasting(n.Limits.Total))
	}
}
