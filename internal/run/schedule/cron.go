package schedule

import (
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the server may stand where no zones are installed

	"signalbox/internal/fault"
)

// Cron is when something is due: the minutes, hours, days and months that a text of five fields names, in a time zone.
// Where both days are restricted one of them is enough, as cron has it.
type Cron struct {
	minutes, hours, days, months, weekdays set

	anyDay, anyWeekday bool
	zone               *time.Location
}

// set are the values of a field, as bits.
type set uint64

func (s set) has(n int) bool { return s&(1<<n) != 0 }

// field is one of the five.
type field struct {
	name        string
	least, most int
	words       []string // of the values from least on
}

var fields = []field{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of the week", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

// shorthands are texts for common times.
var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
}

// Parse reads a text such as "30 9 * * mon-fri" and the name of a time zone, "" for UTC.
func Parse(text, zone string) (c Cron, err error) {
	if c.zone, err = time.LoadLocation(zone); err != nil || strings.EqualFold(zone, "local") {
		return c, fault.New(fault.InvalidPayload, "The time zone %.60q is not known. Take a name such as Europe/Berlin, or UTC.",
			zone).About("timezone")
	}
	if long, short := shorthands[text]; short {
		text = long
	}
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return c, fault.New(fault.InvalidPayload, `cron should have five fields (minute, hour, day of the month, month, day of the week) `+
			`such as "30 9 * * mon-fri", or be one of @hourly, @daily, @weekly, @monthly, @yearly, and is %.100q.`, text).About("cron")
	}
	sets := make([]set, len(fields))
	for i, part := range parts {
		if sets[i], err = fields[i].parse(part); err != nil {
			return c, err
		}
	}
	c.minutes, c.hours, c.days, c.months, c.weekdays = sets[0], sets[1], sets[2], sets[3], sets[4]
	if c.weekdays.has(7) { // another name of Sunday
		c.weekdays |= 1
	}
	c.anyDay, c.anyWeekday = strings.HasPrefix(parts[2], "*"), strings.HasPrefix(parts[4], "*")
	if c.Next(time.Unix(0, 0)).IsZero() {
		return c, fault.New(fault.InvalidPayload, "cron %.100q names a day that never comes.", text).About("cron")
	}
	return c, nil
}

// parse reads a field: values, ranges and steps, with commas between.
func (f field) parse(text string) (all set, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.most {
				return 0, f.wrong(part)
			}
		}
		from, to := f.least, f.most
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			var ok, okToo bool
			from, ok = f.value(first)
			to, okToo = from, true
			if ranged {
				to, okToo = f.value(last)
			} else if stepped {
				to = f.most
			}
			if !ok || !okToo || from > to {
				return 0, f.wrong(part)
			}
		}
		for n := from; n <= to; n += step {
			all |= 1 << n
		}
	}
	return all, nil
}

// value is a number or a word of the field.
func (f field) value(text string) (n int, ok bool) {
	if i := slices.Index(f.words, strings.ToLower(text)); i >= 0 {
		return f.least + i, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= f.least && n <= f.most
}

func (f field) wrong(part string) error {
	return fault.New(fault.InvalidPayload, "The %s in cron should be *, a value from %d to %d, a range such as %d-%d, or one of these "+
		"with a step such as */2, and is %.40q.", f.name, f.least, f.most, f.least+1, f.least+3, part).About("cron")
}

// horizon is how many days are searched: the 29th of February may be eight years away.
const horizon = 9 * 366

// Next is the first time after a moment, zero for never. A time of day that a change of the clocks leaves out is taken
// when it is over, and one that comes twice is taken once.
func (c Cron) Next(after time.Time) time.Time {
	from := after.In(c.zone)
	year, month, day := from.Date()
	for i := range horizon {
		// Noon exists on every day, so the date is right whatever the clocks do.
		date := time.Date(year, month, day+i, 12, 0, 0, 0, c.zone)
		if !c.onDay(date) {
			continue
		}
		for hour := range 24 {
			if !c.hours.has(hour) {
				continue
			}
			for minute := range 60 {
				if !c.minutes.has(minute) {
					continue
				}
				if at := c.at(date, hour, minute); at.After(after) {
					return at.UTC()
				}
			}
		}
	}
	return time.Time{}
}

// onDay reports whether a day is one of those named.
func (c Cron) onDay(date time.Time) bool {
	day, weekday := c.days.has(date.Day()), c.weekdays.has(int(date.Weekday()))
	switch {
	case !c.months.has(int(date.Month())):
		return false
	case c.anyDay || c.anyWeekday:
		return day && weekday
	}
	return day || weekday
}

// at is a time of day, or the first moment after it if there is no such time on that day.
func (c Cron) at(date time.Time, hour, minute int) time.Time {
	year, month, day := date.Date()
	at := time.Date(year, month, day, hour, minute, 0, 0, c.zone)
	if at.Hour() == hour && at.Minute() == minute {
		return at
	}
	// Clocks are changed by some hours at the most. From before the gap on, the first minute that is late enough.
	wanted := hour*60 + minute
	at = at.Add(-3 * time.Hour)
	for at.Day() != day || at.Hour()*60+at.Minute() < wanted {
		at = at.Add(time.Minute)
	}
	return at
}
