package web

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/address"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

// functions are what templates can call. Those that return template.HTML escape their arguments
// themselves; all others return text, which html/template escapes.
func (w *Web) functions() template.FuncMap {
	return template.FuncMap{
		"visible":  visible,
		"lines":    lines,
		"exact":    exact,
		"icon":     icon,
		"when":     func(t any) template.HTML { return when(w.Now(), t) },
		"ref":      ref,
		"short":    short,
		"num":      num,
		"money":    money,
		"pretty":   pretty,
		"diff":     diffHTML,
		"cut":      cut,
		"unquoted": func(s string) string { return strings.Trim(s, "`") },
		"plural":   plural,
		"lasts":    lasts,
		"pairs":    pairs,
		"title":    title,
		"at":       at,
		"handedOn": handedOnAt,
		"line":     w.Protocols.Label,
		"origins":  w.Protocols.Origins,
	}
}

// when is a moment relative to now, with the exact time on hover.
func when(now time.Time, at any) template.HTML {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	// Optional times come as pointers.
	case *time.Time:
		if at == nil {
			return "<span class=\"muted\">never</span>"
		}
		t = *at
	}
	if t.IsZero() {
		return "<span class=\"muted\">never</span>"
	}
	t = t.UTC()
	// The script reads datetime and keeps the text up to date.
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `" title="` +
		t.Format("Mon 2 Jan 2006, 15:04:05 UTC") + `">` + relative(now.Sub(t)) +
		`</time>`) //nolint:gosec // made of times alone
}

// relative says how long ago something was, or how far away it is. static/relay.js says the same
// while a page is open.
func relative(ago time.Duration) string {
	if ago < 0 {
		return "in " + lasts(-ago)
	}
	// Counting seconds would only flicker.
	if ago < 5*time.Second {
		return "now"
	}
	return lasts(ago) + " ago"
}

// lasts is a duration in its largest unit.
func lasts(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// short is the part of a long id by which people tell it from others: the end, since the beginning
// of our ids is the time.
func short(id string) string {
	prefix, rest, ok := strings.Cut(id, "_")
	switch {
	// Our own ids: the noun says what it is, the last characters which one.
	case ok && len(rest) > 12:
		return prefix + "…" + rest[len(rest)-6:]
	case utf8.RuneCountInString(id) > 24:
		runes := []rune(id)
		return string(runes[:10]) + "…" + string(runes[len(runes)-6:])
	}
	return id
}

// ref is a long id, shortened, with a button that copies all of it.
func ref(id string) template.HTML {
	whole := html.EscapeString(show.Text(id))
	return template.HTML(`<span class="ref"><code title="` + whole + `">` + html.EscapeString(show.Text(short(id))) +
		`</code>` + //nolint:gosec // escaped
		`<button type="button" class="copy" data-copy="` + whole + `" aria-label="Copy ` + whole + `" hidden>` +
		string(icon("copy")) + `</button></span>`)
}

// num is a number with commas between thousands, as commands write it.
func num(n any) string {
	text := fmt.Sprint(n)
	digits := strings.TrimPrefix(text, "-")
	// Templates may pass anything; what is no whole number stays as it is.
	if _, err := strconv.ParseUint(digits, 10, 64); err != nil {
		return text
	}
	var b strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return strings.TrimSuffix(text, digits) + b.String()
}

// money is an amount in dollars, with more digits where it is small.
func money(usd float64) string {
	switch {
	case usd == 0:
		return "$0.00"
	case usd < 0.01:
		return fmt.Sprintf("$%.4f", usd)
	case usd >= 10_000:
		cents := int64(math.Round(usd * 100))
		return "$" + num(cents/100) + fmt.Sprintf(".%02d", cents%100)
	}
	return fmt.Sprintf("$%.2f", usd)
}

// pretty is wire.Pretty of anything that is a text.
func pretty(raw any) string { return wire.Pretty(fmt.Sprintf("%s", raw)) }

// cut is the beginning of a text, on one line, with an ellipsis if something is missing. most
// counts characters.
func cut(most int, text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ' ' }), " ")
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return strings.TrimSpace(string(runes[:most])) + "…"
}

// plural is a number with its noun: "1 gate", "3 gates". Nouns are our own and regular.
func plural(n any, noun string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + noun
	}
	return num(n) + " " + noun + "s"
}

// pairs makes a map of names and values, for templates that take more than one argument.
func pairs(all ...any) (map[string]any, error) {
	if len(all)%2 != 0 {
		return nil, fmt.Errorf("pairs takes names and values, and there are %d", len(all))
	}
	out := map[string]any{}
	for i := 0; i < len(all); i += 2 {
		out[fmt.Sprint(all[i])] = all[i+1]
	}
	return out, nil
}

// title is a word with a capital letter.
func title(word any) string {
	text := fmt.Sprint(word)
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// at is the path of a page by its name, with the values for the names in braces.
func at(name string, values ...any) (string, error) {
	page, ok := address.Named[name]
	if !ok {
		return "", fmt.Errorf("there is no page %q", name)
	}
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return page.At(texts...), nil
}
