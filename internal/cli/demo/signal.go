package demo

import (
	"context"
	"errors"
	"time"

	amp "signalbox/client"
)

// signals is the part of the writer: six signals, some of which ask for a decision. The
// operator of the story decides those with a decide function. The others wait for the
// user, which is why the last two are the most interesting ones.
func (d *story) signals(ctx context.Context) error {
	a := d.agents[writer]
	for _, s := range []struct {
		amp.Payload
		in, out int64
		decide  func(gateID string) error
	}{
		{
			Payload: amp.Payload{ProjectID: "newsletter", Summary: "Collected 14 customer quotes for the spring issue"},
			in:      18_204, out: 2_310,
		},
		{
			Payload: amp.Payload{
				ProjectID: "newsletter", Summary: "Wrote five subject lines and scored them against last year's",
				GateRequired:   true,
				ProposedAction: "Use “Your garden wakes up” as the subject", Artifacts: []any{amp.JSON(subjectLines)},
				WebhookURL: d.hook("/taken"),
			}, in: 6_120, out: 840,
			decide: func(id string) error { return d.decide(ctx, id, true, "Short, and it is ours. Go.") },
		},
		{
			Payload: amp.Payload{
				ProjectID: "pricing", Summary: "Prepared a forum post about the new prices", GateRequired: true,
				ProposedAction: "Post the price list in the public forum", Artifacts: []any{amp.Markdown(forumPost)},
				WebhookURL: d.hook("/gone"),
			}, in: 4_410, out: 960,
			decide: func(id string) error {
				return d.decide(ctx, id, false, "Prices are under embargo until Monday. Ask again then.")
			},
		},
		{
			Payload: amp.Payload{
				ProjectID: "newsletter", Summary: "Translated the spring issue into German and French", GateRequired: true,
				ProposedAction: "Upload both translations to the mail service", Artifacts: []any{amp.Text(translation)},
				WebhookURL: d.hook("/overloaded"),
			}, in: 21_873, out: 19_440,
			decide: func(id string) error { return d.decide(ctx, id, true, "") },
		},
		{
			Payload: amp.Payload{
				ProjectID: "newsletter",
				Summary: "The spring issue is written, checked for links and laid out.\n" +
					"Three readers have looked at it; nobody has seen the final picture.", GateRequired: true,
				ProposedAction: "Send the spring newsletter to 4,210 subscribers",
				Artifacts:      []any{amp.Markdown(newsletter), amp.JSON(audience)}, WebhookURL: d.hook("/taken"),
			}, in: 48_112, out: 6_204,
		},
		{
			Payload: amp.Payload{
				ProjectID: "pricing", Summary: "Raised the prices of 12 seed mixes by 4 % and left those below 3 € alone",
				GateRequired:   true,
				ProposedAction: "Publish the new price table on the shop's page", Artifacts: []any{amp.Diff(priceDiff)},
			}, in: 9_310, out: 1_544,
		},
	} {
		s.RunID, s.Model, s.InputTokens, s.OutputTokens = amp.NewRunID(), model, s.in, s.out
		s.Cost = amp.BuiltinPrices().Cost(model, s.in, s.out)
		if s.ProjectID == "pricing" && s.decide == nil {
			s.Cost /= 2 // what the agent says is not what the price table says, and is shown so
		}
		s.CompletedAt = time.Now().UTC()
		// As if 40 tokens were written per second.
		s.StartedAt = s.CompletedAt.Add(-time.Duration(s.out/40) * time.Second)
		answer, err := a.signals.Signal(ctx, s.Payload)
		if err != nil {
			return passed(err)
		}
		if s.decide != nil && answer.GateID != "" {
			if err := s.decide(answer.GateID); err != nil {
				return err
			}
		}
		if answer.GateID != "" && s.ProjectID == "newsletter" && s.decide != nil {
			// Refused for a gate that is still pending; the story does without it then.
			_, _ = a.signals.Signal(ctx, amp.Receipt{GateID: answer.GateID, Summary: "Done as proposed"})
		}
	}
	_, err := a.signals.Signal(ctx, amp.Failure{
		RunID: amp.NewRunID(), ProjectID: "newsletter",
		Summary: "The picture for the cover could not be made", ErrorCode: "timeout",
		ErrorMessage: "The picture service gave no answer within 90 seconds", Model: model, InputTokens: 1_200,
	})
	if err == nil {
		_, err = a.signals.Signal(ctx,
			amp.Registration{Capabilities: []string{"write", "translate", "schedule"}, Trust: "trusted"})
	}
	d.report(writer, "wrote the spring newsletter, and asks before it goes to 4,210 subscribers")
	return passed(err)
}

// passed drops the error of a signal that the policy refused. The story goes on without
// it.
func passed(err error) error {
	if refused, ok := errors.AsType[*amp.Error](err); ok && refused.Status == 403 {
		return nil
	}
	return err
}

// model has to be one of the price table, or its cost would be unknown.
const model = "claude-sonnet-4-6"

var (
	// What the agents attach: one artifact of every kind that the dashboard shows in its
	// own way.
	subjectLines = []map[string]any{
		{"subject": "Your garden wakes up", "score": 0.91},
		{"subject": "Seeds, soil, spring", "score": 0.84},
		{"subject": "12 mixes for March", "score": 0.62},
	}
	audience = map[string]any{
		"list": "spring-2026", "subscribers": 4210,
		"languages": map[string]int{"en": 2980, "de": 870, "fr": 360}, "send_at": "Tuesday 09:00",
	}
)

const (
	forumPost   = "# New prices from March\n\nSeed mixes go up by **4 %**. Everything below 3 € stays as it is.\n"
	translation = "DE  Ihr Garten erwacht. Zwölf Mischungen für den März, und eine Anleitung für Töpfe.\n" +
		"FR  Votre jardin se réveille. Douze mélanges pour mars, et un guide pour les pots.\n"
	newsletter = "## Your garden wakes up\n\n" +
		"The days are longer than the nights again, and our **twelve spring mixes** are packed.\n\n" +
		"- *Meadow 3* flowers from April to October\n- *Balcony* needs half a day of sun\n" +
		"- *Bee friend* is back, after two years\n\n" +
		"> “The meadow came up in nine days. I had given up on that corner.” — Ines, Porto\n\n" +
		"1. Loosen the soil\n2. Sow thinly\n3. Water, and wait\n"
	priceDiff = `--- a/prices/seeds.csv
+++ b/prices/seeds.csv
@@ -1,6 +1,6 @@
 article,name,price
-1007,Meadow 3,7.40
-1008,Balcony,5.20
+1007,Meadow 3,7.70
+1008,Balcony,5.40
 1009,Cress,2.10
-1011,Bee friend,8.90
+1011,Bee friend,9.25
 1012,Lawn repair,2.95
`
)
