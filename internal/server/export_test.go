package server

import (
	"net/http"

	"signalbox/internal/wire"
)

// PublicRoutes are the routes that the server itself asks for no credential, and the handler that serves them.
func (s *Server) PublicRoutes() (public []wire.Route, all http.Handler) {
	for _, route := range append(s.core.routes(), s.ownRoutes()...) {
		if route.Auth == wire.Public {
			public = append(public, route)
		}
	}
	return public, s.handler()
}
