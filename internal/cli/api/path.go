package api

import (
	"fmt"
	"net/url"
	"strings"
)

// Path is an address of the API. The value takes the place of {} and is escaped.
func Path(pattern, value string) string {
	return strings.Replace(pattern, "{}", url.PathEscape(value), 1)
}

// Query are the parameters of a call by name. One whose value is an empty text is left out: the server
// takes it for absent.
type Query map[string]any

// At is the path with the parameters.
func (q Query) At(path string) string {
	values := url.Values{}
	for name, value := range q {
		if text := fmt.Sprint(value); text != "" {
			values.Set(name, text)
		}
	}
	return path + "?" + values.Encode()
}

// Find reads what the parameters select of what is at the path.
func Find(path string, q Query) Request { return Get(q.At(path)) }
