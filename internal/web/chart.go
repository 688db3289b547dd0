package web

import (
	"fmt"
	"math"
	"time"
)

// chart is a stacked bar chart of numbers by day, or by hour. It is drawn as SVG with everything in percent,
// so that it fits any width while its text keeps its size. The numbers are also in a table beside
// it, for people who do not see the picture.
type chart struct {
	ID     string
	Title  string
	Series []series
	Days   []string
	Bars   []bar
	Lines  []gridLine
	Axis   string // day or hour
	Span   string // the time that it is about, such as 30 days
	format func(float64) string
	label  func(string) string
}

// series is one kind of number, in one colour.
type series struct {
	Name   string
	Class  string // c1 to c5
	Values []float64
}

// bar is one rectangle, in percent.
type bar struct {
	X, Y, Width, Height string
	Class               string
	Title               string
}

// gridLine is a line across the chart, with its number.
type gridLine struct{ Y, LabelY, Label string }

// newChart draws the series of some days. Each series has a value for each day.
func newChart(id, title string, days []string, format func(float64) string, all ...series) chart {
	return drawChart(chart{
		ID: id, Title: title, Series: all, Days: days, Axis: "day", Span: fmt.Sprintf("%d days", len(days)), format: format,
		label: dayName,
	})
}

// newHours draws the series of some hours.
func newHours(id, title string, hours []string, format func(float64) string, all ...series) chart {
	return drawChart(chart{
		ID: id, Title: title, Series: all, Days: hours, Axis: "hour", Span: fmt.Sprintf("%d hours", len(hours)),
		format: format, label: hourName,
	})
}

// drawChart adds the bars and the lines.
func drawChart(c chart) chart {
	days, all, format := c.Days, c.Series, c.format
	// The scale: the highest stack of all days, rounded up.
	top := 0.0
	for day := range days {
		sum := 0.0
		for _, s := range all {
			sum += s.Values[day]
		}
		top = max(top, sum)
	}
	top = ceiling(top)
	for _, part := range []float64{0, 0.5, 1} {
		y := 100 - 100*part
		c.Lines = append(c.Lines, gridLine{percent(y), percent(y), format(top * part)})
	}
	// Bars take 72 % of their day's width, with the rest as a gap on both sides.
	step := 100 / float64(max(len(days), 1))
	for day := range days {
		from := 0.0
		for _, s := range all {
			value := s.Values[day]
			// Nothing is drawn for zero, and Empty relies on that.
			if value <= 0 {
				continue
			}
			height := 100 * value / top
			c.Bars = append(c.Bars, bar{
				X: percent(float64(day)*step + step*0.14), Width: percent(step * 0.72), Y: percent(100 - from - height),
				Height: percent(height),
				Class:  s.Class, Title: fmt.Sprintf("%s: %s %s", c.label(days[day]), format(value), s.Name),
			})
			from += height
		}
	}
	return c
}

// ceiling is the next round number, so that the lines are at numbers that people can read.
func ceiling(n float64) float64 {
	if n <= 0 {
		return 1
	}
	// 1, 2, 4, 5 and 10 can be halved into a readable middle line.
	unit := math.Pow(10, math.Floor(math.Log10(n)))
	for _, times := range []float64{1, 2, 4, 5, 10} {
		if n <= times*unit {
			return times * unit
		}
	}
	return 10 * unit
}

// percent is a length for SVG.
func percent(n float64) string { return fmt.Sprintf("%.2f%%", n) }

// dayName is a day as people write it; days are stored as 2006-01-02.
func dayName(day string) string {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return day
	}
	return t.Format("2 Jan")
}

// hourName is an hour as people write it; hours are stored as 2006-01-02T15.
func hourName(hour string) string {
	t, err := time.Parse("2006-01-02T15", hour)
	if err != nil {
		return hour
	}
	return t.Format("2 Jan 15:04")
}

// Empty reports whether there is nothing to draw.
func (c chart) Empty() bool { return len(c.Bars) == 0 }

// Ends are the days to write below: the first, one in the middle, the last.
func (c chart) Ends() []string {
	if len(c.Days) < 3 {
		return c.Days
	}
	return []string{c.label(c.Days[0]), c.label(c.Days[len(c.Days)/2]), c.label(c.Days[len(c.Days)-1])}
}

// Sum is what a series amounts to.
func (c chart) Sum(s series) string {
	sum := 0.0
	for _, v := range s.Values {
		sum += v
	}
	return c.format(sum)
}

// chartRow is a line of the table beside a chart.
type chartRow struct {
	Day    string
	Values []string
}

// Rows are the numbers of the days on which there are any.
func (c chart) Rows() (rows []chartRow) {
	for day := range c.Days {
		row, some := chartRow{Day: c.label(c.Days[day])}, false
		for _, s := range c.Series {
			row.Values, some = append(row.Values, c.format(s.Values[day])), some || s.Values[day] != 0
		}
		if some {
			rows = append(rows, row)
		}
	}
	return rows
}

// share is one part of a bar that shows how a whole is made up. X and Width are percentages.
type share struct {
	Name, Class string
	N           int64
	X, Width    string
}

// shares lays the parts end to end.
func shares(parts ...share) []share {
	total := int64(0)
	for _, p := range parts {
		total += p.N
	}
	at := 0.0
	for i := range parts {
		width := 100 * float64(parts[i].N) / float64(max(total, 1))
		parts[i].X, parts[i].Width = percent(at), percent(width)
		at += width
	}
	return parts
}

// tally is a number as short as people say it: 12k, 3.4M. The exact one is in the table.
func tally(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.3gG", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.3gM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.3gk", n/1e3)
	case n == math.Trunc(n):
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.3g", n)
}
