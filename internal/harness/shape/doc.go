// Package shape checks that JSON has the form that AHP 2.4 fixes. It owns the checks (shape.go) and,
// as data, what envelopes, payloads and decisions look like (payloads.go), and knows neither events
// nor what follows from them. There is no state; a shape may be used by many goroutines.
package shape
