// Package forwarded reads what proxies add to requests that they pass on. It believes nothing: package server decides
// which proxies are believed.
package forwarded

import (
	"net/http"
	"slices"
	"strings"

	"signalbox/internal/mail/federation"
)

// Last is the last value of a header that is a list: the one that the nearest proxy has added.
func Last(r *http.Request, header string) string {
	all := strings.Join(r.Header.Values(header), ",")
	return strings.TrimSpace(all[strings.LastIndexByte(all, ',')+1:])
}

// By is what shows that a proxy has passed a request on, "" if nothing does. nginx speaks HTTP/1.0 to
// what is behind it and adds no header unless it is told to; clients have not spoken it for decades.
func By(r *http.Request) string {
	for name := range r.Header {
		// Hosts of the mail mesh name themselves in X-Forwarded-From.
		if strings.HasPrefix(name, "X-Forwarded-") && name != federation.HostHeader || slices.Contains(proxyHeaders, name) {
			return name
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return r.Proto
	}
	return ""
}

// proxyHeaders are headers that proxies add, beside those that begin with X-Forwarded.
var proxyHeaders = []string{
	"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
	"Fly-Client-Ip", "X-Original-Forwarded-For", "X-Envoy-External-Address",
}
