package cli

import (
	"io"

	"github.com/spf13/cobra"

	"signalbox/internal/conform"
	"signalbox/internal/fault"
	"signalbox/internal/run/vector"
)

func newConformRun(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "run DIR", Short: "Check the engines against recorded runs in a folder",
		Long: "Translates every recorded stream in the folder (NAME.jsonl) and compares the events with\nthose that are expected (NAME.expected.json), and checks argv.cases.json,\nresume.cases.json and titles.cases.json if they are there.",
		Args: exactly(1, "a folder with recorded runs"),
	})
	c.RunE = func(_ *cobra.Command, args []string) error {
		outcomes, err := vector.Check(args[0])
		if err != nil {
			return err
		}
		report := conform.Report{Cases: []conform.Outcome{}}
		for _, o := range outcomes {
			one := conform.Outcome{Name: o.Name, Outcome: "passed", Problem: o.Problem}
			if o.Problem == "" {
				report.Passed++
			} else {
				one.Outcome = "failed"
				report.Failed++
			}
			report.Cases = append(report.Cases, one)
		}
		if err := a.show(report, func(w io.Writer) { printConform(w, report) }); err != nil {
			return err
		}
		if report.Failed > 0 {
			return fault.New(fault.VerificationFailed, "%s did not come out as expected.", number(report.Failed, "case"))
		}
		return nil
	}
	return c
}
