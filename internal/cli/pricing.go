package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/price"
	"signalbox/internal/wire"
)

// modelArgument completes the usage error of the commands that take a model.
const modelArgument = "the name of the model, such as claude-sonnet-4-6"

// newPricing is the group `pricing`.
func newPricing(a *command.App) *command.Command {
	return command.Group("pricing", "What models cost: list, set, import, take back", newPricingLs(a), newPricingSet(a),
		newPricingImport(a), newPricingRm(a))
}

// newPricingLs lists all prices, or says how one model is priced.
func newPricingLs(a *command.App) *command.Command {
	c := a.Listing("List what models cost, or how one model is priced")
	c.Use, c.Args = "ls [MODEL]", command.AtMost(1, modelArgument)
	c.Example = "  signalbox pricing ls\n  signalbox pricing ls claude-sonnet-4-6-20260101"
	c.RunE = func(c *command.Command, args []string) error {
		if len(args) == 1 {
			return command.Ask(c.Context(), a, api.Get(api.Path("/ops/pricing/{}", args[0])), func(w output.Printer, one price.Asked) {
				w.Print("%s", describeMatch(one))
				printPrices(w, []price.Price{one.Price})
			})
		}
		return command.Ask(c.Context(), a, api.Get("/amp/pricing"), func(w output.Printer, all price.Listed) {
			printPrices(w, all.Models)
			w.Print("\nDollars for a million tokens, version %d. The newest price of a provider was read on %s, %s ago.",
				all.Version, all.Read, countOf(all.AgeDays, "day"))
		})
	}
	return c
}

// countOf is a number with its noun.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// describeMatch says how the price of a model was found.
func describeMatch(one price.Asked) string {
	switch one.Match {
	case price.Exact:
		return one.Model + " has a price of its own."
	case price.Alias:
		return one.Model + " is " + one.Price.Model + " with a date, a version or a provider in its name."
	case price.Family:
		return one.Model + " is not in the table. It is priced as " + one.Price.Model + ", the dearest model of its family."
	case price.Unpriced:
	}
	return one.Model + " is not in the table, nor its family. It counts at the price for unknown models until you set one: " +
		"signalbox pricing set " + one.Model + " --input DOLLARS --output DOLLARS"
}

func printPrices(w output.Printer, all []price.Price) {
	w.Table("There are no prices.",
		[]string{"MODEL", "PROVIDER", "FROM", "ABOVE", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "1 HOUR", "BATCH", "READ"},
		output.Rows(all, func(p price.Price) []string {
			above := "-"
			if p.Above > 0 {
				above = output.Thousands(p.Above)
			}
			return []string{
				p.Model, cmp.Or(p.Provider, "-"), cmp.Or(p.From, "-"), above, dollarText(&p.Input), dollarText(&p.Output),
				dollarText(p.CacheRead), dollarText(p.CacheWrite), dollarText(p.CacheWrite1h), factorText(p.Batch), cmp.Or(p.Read, "-"),
			}
		}))
}

// dollarText is an amount, a dash if there is none.
func dollarText(amount *float64) string {
	if amount == nil {
		return "-"
	}
	return strconv.FormatFloat(*amount, 'f', -1, 64)
}

func factorText(factor *float64) string {
	if factor == nil {
		return "-"
	}
	return "×" + dollarText(factor)
}

// newPricingSet sets the price of one model. What is not given stays as it is.
func newPricingSet(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "set MODEL", Short: "Set the price of one model; what is not given stays as it is",
		Args: command.Exactly(1, modelArgument),
		Example: "  signalbox pricing set our-model --input 0.5 --output 2\n" +
			"  signalbox pricing set claude-sonnet-4-6 --cache-read 0.3 --from 2027-01-01\n" +
			"  signalbox pricing set '*' --input 30 --output 180   # models that are not in the table",
	})
	amounts := []struct {
		flag, meaning string
		of            func(*price.Price) **float64
	}{
		{"cache-read", "for tokens read from a cache", func(p *price.Price) **float64 { return &p.CacheRead }},
		{"cache-write", "for tokens written to a cache", func(p *price.Price) **float64 { return &p.CacheWrite }},
		{"cache-write-1h", "for tokens written to a cache for an hour", func(p *price.Price) **float64 { return &p.CacheWrite1h }},
		{"audio-input", "for audio in", func(p *price.Price) **float64 { return &p.AudioInput }},
		{"audio-output", "for audio out", func(p *price.Price) **float64 { return &p.AudioOutput }},
		{"image-input", "for pictures in", func(p *price.Price) **float64 { return &p.ImageInput }},
		{"image-output", "for pictures out", func(p *price.Price) **float64 { return &p.ImageOutput }},
		{"batch", "factor for batches, such as 0.5", func(p *price.Price) **float64 { return &p.Batch }},
		{"flex", "factor for the tier flex", func(p *price.Price) **float64 { return &p.Flex }},
		{"priority", "factor for the tiers priority and fast", func(p *price.Price) **float64 { return &p.Priority }},
	}
	input := c.Flags().Float64("input", 0, "dollars for a million tokens in")
	out := c.Flags().Float64("output", 0, "dollars for a million tokens out")
	given := map[string]*float64{}
	for _, one := range amounts {
		given[one.flag] = c.Flags().Float64(one.flag, 0, one.meaning)
	}
	provider := c.Flags().String("provider", "", "only for calls to this provider: anthropic, openai, google")
	from := c.Flags().String("from", "", "the day (UTC) from which it holds, such as 2027-01-01; always without it")
	above := c.Flags().Int64("above", 0, "only for requests of more tokens than that, such as 200000")
	c.RunE = func(c *command.Command, args []string) error {
		cl, err := a.Client()
		if err != nil {
			return err
		}
		var now price.Asked
		if err := cl.Call(c.Context(), api.Get(api.Path("/ops/pricing/{}", args[0])), &now); err != nil {
			return err
		}
		p := now.Price
		if now.Match != price.Exact && (args[0] != price.Any || now.Match != price.Unpriced) {
			p = price.Price{Model: args[0]}
			if !c.Flags().Changed("input") || !c.Flags().Changed("output") {
				return command.Usage("%s has no price yet. Give --input and --output, in dollars for a million tokens.", args[0])
			}
		}
		p.From, p.Above, p.Read = *from, *above, ""
		if c.Flags().Changed("provider") {
			p.Provider = *provider
		}
		if c.Flags().Changed("input") {
			p.Input = *input
		}
		if c.Flags().Changed("output") {
			p.Output = *out
		}
		for _, one := range amounts {
			if c.Flags().Changed(one.flag) {
				*one.of(&p) = given[one.flag]
			}
		}
		return changePrices(c, a, price.Change{Models: []price.Price{p}}, p.Model+" has its new price")
	}
	return c
}

// changePrices sends a change and says what came of it.
func changePrices(c *command.Command, a *command.App, change price.Change, done string) error {
	return command.Ask(c.Context(), a, api.Put("/ops/pricing", change), func(w output.Printer, all price.Listed) {
		w.Print("%s, version %d. Costs that were recorded before stay as they are.", done, all.Version)
	})
}

// newPricingImport reads prices from a file.
func newPricingImport(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "import FILE", Short: "Set the prices of the models in a file of JSON; all others stay",
		Args: command.Exactly(1, "the file, or - for standard input"),
		Long: "Set the prices of the models in a file of JSON; all others stay. The file is a list of prices, or an object " +
			"with the member models, as `signalbox pricing ls --json` prints it.",
		Example: "  signalbox pricing ls --json > prices.json\n  signalbox pricing import prices.json",
	})
	c.RunE = func(c *command.Command, args []string) error {
		in := io.Reader(os.Stdin)
		if args[0] != "-" {
			file, err := os.Open(args[0])
			if err != nil {
				return command.Usage("%s cannot be read: %v", args[0], err)
			}
			defer func() { _ = file.Close() }()
			in = file
		}
		text, err := io.ReadAll(io.LimitReader(in, 8<<20))
		if err != nil {
			return err
		}
		models, err := readPriceFile(text)
		if err != nil {
			return command.Usage("%s is not a list of prices such as [{\"model\":\"m\",\"input\":3,\"output\":15}]: %v", args[0], err)
		}
		return changePrices(c, a, price.Change{Models: models}, countOf(len(models), "price")+" set")
	}
	return c
}

// readPriceFile reads a list of prices, or an object that has one.
func readPriceFile(text []byte) (models []price.Price, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return models, wire.Unmarshal(text, &models)
	}
	var all price.Listed
	err = wire.Unmarshal(text, &all)
	return slices.Clone(all.Models), err
}

// newPricingRm takes back what was set.
func newPricingRm(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "rm MODEL...", Short: "Take back what was set for models; the prices that came with the program hold again",
		Args: command.AtLeast(1, modelArgument),
	})
	c.RunE = func(c *command.Command, args []string) error {
		return changePrices(c, a, price.Change{Removed: args}, "What was set for "+strings.Join(args, ", ")+" is taken back")
	}
	return c
}
