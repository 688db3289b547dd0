package proxy

import (
	"errors"
	"net/http"
	"strconv"

	"signalbox/internal/fault"
	"signalbox/internal/proxy/form"
	"signalbox/internal/wire"
)

// errorKinds are the providers' words for a status.
var errorKinds = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusUnsupportedMediaType: "invalid_request_error", http.StatusMethodNotAllowed: "invalid_request_error",
}

func errorKind(status int) string {
	if kind := errorKinds[status]; kind != "" {
		return kind
	}
	return "api_error"
}

// failure is a reply of ours that is an error, in the provider's form.
type failure struct {
	status  int
	kind    string
	message string
	gate    string
	retry   int // seconds; 0 says that it is no use
}

// failureOf is an error of ours as a failure.
func failureOf(err error) failure {
	if b, ok := errors.AsType[*gatewayError](err); ok {
		return failure{status: http.StatusBadGateway, kind: "api_error", message: b.text}
	}
	e := fault.From(err)
	f := failure{status: e.Code.Status(), message: e.Message}
	f.kind = errorKind(f.status)
	if seconds, ok := e.Details[wire.RetryAfter].(int); ok {
		f.retry = seconds
	}
	return f
}

// write answers with the failure.
func (f failure) write(w http.ResponseWriter, provider string) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch {
	case f.retry > 0:
		h.Set("Retry-After", strconv.Itoa(f.retry))
	case f.status < http.StatusInternalServerError:
		h.Set("X-Should-Retry", "false")
	}
	body := form.Object{"error": form.OpenAIError(f.kind, f.message)}
	if provider == Anthropic {
		body = form.Object{"type": "error", "error": form.Object{"type": f.kind, "message": f.message}, "request_id": h.Get("X-Request-Id")}
	}
	if f.gate != "" {
		h.Set("X-Amp-Gate-Id", f.gate)
		body["gate_id"] = f.gate
	}
	text := form.JSON(body)
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(f.status)
	_, _ = w.Write(text)
}
