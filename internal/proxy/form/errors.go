package form

import "net/http"

// errorKinds are the error types that SDKs of the providers know for a status (PRX-50).
var errorKinds = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error",
	http.StatusForbidden: "permission_error",
	http.StatusNotFound:  "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:    "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error", http.StatusGatewayTimeout: "timeout_error",
	http.StatusUnsupportedMediaType: "invalid_request_error", http.StatusMethodNotAllowed: "invalid_request_error",
}

// ErrorKind is the error type of a status; everything else is the provider's word for a server error.
func ErrorKind(status int) string {
	if kind := errorKinds[status]; kind != "" {
		return kind
	}
	return "api_error"
}
