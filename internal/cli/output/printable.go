package output

import (
	"fmt"
	"reflect"
	"strings"

	"signalbox/internal/show"
)

// Shown is a text that can be printed as it is: it was made visible, or it is our own.
type Shown string

// Lines is a text of several lines, made visible, which keeps them.
func Lines(text string) Shown { return Shown(strings.ReplaceAll(show.Lines(text), "\t", "    ")) }

// visible is an argument of Print as it is printed.
func visible(arg any) any {
	switch v := arg.(type) {
	case Shown:
		return string(v)
	case error:
		return show.Text(v.Error())
	case fmt.Stringer:
		return show.Text(v.String())
	}
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.String:
		return show.Text(v.String())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return show.Text(string(v.Bytes()))
		}
		return show.Text(fmt.Sprint(arg))
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return show.Text(fmt.Sprint(arg))
	}
	return arg
}

// OneLine is a text without its line breaks and its runs of spaces.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Cut is the first line of a text, and no more than so many characters of it.
func Cut(text string, most int) string {
	line, _, more := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > most {
		line, more = string(runes[:most]), true
	}
	if more {
		line += "…"
	}
	return line
}
