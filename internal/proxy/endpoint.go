package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"signalbox/internal/proxy/form"
)

// The largest requests that providers take, in bytes (PRX-3).
const (
	maxCall  = 32 << 20
	maxBatch = 256 << 20
	maxFile  = 500 << 20
)

// endpoint is an endpoint of a provider that is carried. form and kind say what is judged: both
// for a call to a model, kind alone for a batch and for embeddings, form alone for a reply that the provider has
// stored, and neither for calls that are only passed on.
type endpoint struct {
	provider string
	path     string     // at the provider, escaped as the client wrote it
	form     *form.Form // of the reply; nil if no tool call can be in it
	kind     string     // event.kind of the request; "" if the request is not judged
	most     int64      // bytes of the request
	reads    string     // what is read of a call that is only passed on; "" for nothing
	id       string     // of the batch or file, where that is read
}

// findEndpoint finds the endpoint that a call is for. Unknown endpoints are not carried: a tool
// call could pass the rules through them (PRX-1).
func findEndpoint(provider, method, path string) (endpoint, bool) {
	e := endpoint{provider: provider, path: path, most: maxCall}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 2 || parts[0] != "v1" {
		return e, false
	}
	carry := e.openAI
	if provider == Anthropic {
		carry = e.anthropic
	}
	known := carry(method, parts[1:])
	e.readsOf(method, parts[1:])
	return e, known
}

// unescaped is a part of a path as the provider understands it.
func unescaped(part string) string {
	if plain, err := url.PathUnescape(part); err == nil {
		return plain
	}
	return part
}

// anthropic fills in the endpoint for parts of a path after v1, and reports whether it is carried.
func (e *endpoint) anthropic(method string, parts []string) bool {
	switch post := method == http.MethodPost; parts[0] {
	case "messages":
		switch {
		case len(parts) == 1 && post:
			e.form, e.kind = form.Messages, form.Messages.Name
			return true
		case len(parts) == 1:
			return false
		case parts[1] == "count_tokens":
			return len(parts) == 2
		case parts[1] == "batches":
			e.most = maxBatch
			if len(parts) == 2 && post {
				e.kind = kindBatch
			}
			return true
		}
	case "files", "skills":
		e.most = maxFile
		return true
	case "models":
		return method == http.MethodGet
	}
	return false
}

// openAI does the same for OpenAI, which also gives out replies that it has stored: those are judged
// like new ones, since a tool call in them is as new to the client.
func (e *endpoint) openAI(method string, parts []string) bool {
	post := method == http.MethodPost
	switch parts[0] {
	case "chat":
		if len(parts) < 2 || parts[1] != "completions" {
			return false
		}
		e.form = form.Chat
		switch {
		case len(parts) == 2 && post:
			e.kind = form.Chat.Name
			return true
		case len(parts) == 3: // one that was stored
			return true
		}
	case "responses":
		e.form = form.Responses
		switch {
		case len(parts) == 1 && post:
			e.kind = form.Responses.Name
			return true
		case len(parts) == 2: // one that was stored, or runs in the background
			return method == http.MethodGet || method == http.MethodDelete
		case len(parts) == 3:
			return parts[2] == "cancel" && post
		}
	case "models":
		return method == http.MethodGet
	case "embeddings":
		e.kind = kindEmbeddings
		return len(parts) == 1 && post
	case "moderations": // which cost nothing
		return len(parts) == 1 && post
	case "batches":
		switch {
		case len(parts) == 1 && post:
			e.kind = kindBatch
			return true
		case len(parts) <= 2:
			return method == http.MethodGet
		case len(parts) == 3:
			return parts[2] == "cancel" && post
		}
	case "files":
		e.most = maxFile
		return true
	}
	return false
}
