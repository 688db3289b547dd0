package record

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/wire"
)

// TokenVariable is in the environment of a metered CLI: the secret by which it calls its models through us. It is
// good for this run alone.
const TokenVariable = "SIGNALBOX_MODEL_TOKEN"

// Metering is what a meter is made of.
type Metering struct {
	Run      string
	Provider string // as the model proxy names it
	Key      string // the provider's, "" if the proxy's vault has one
	AgentKey string // as which the run calls, "" to ask the server for one
	Within   string // the token of what the run was handed, "" for nothing
	// Stop is called with a process.StoppedError when the run has to end.
	Stop context.CancelCauseFunc
}

// Meter carries the calls of models of one run to the model proxy of the server (RUN-48). They go one at a time, and
// none before the server has counted the one before it and lets the run go on: a budget is exceeded by one call at
// the most. The CLI knows neither the provider's key nor one of Signalbox.
type Meter struct {
	Metering
	server   Server
	token    string
	listener net.Listener
	serving  *http.Server
	forward  *httputil.ReverseProxy
	turn     chan struct{} // who has its element makes a call; it guards what is below

	answered int64 // calls that the server has to count
	asked    time.Time
}

const (
	// countWait is how long the server may take to count a call, in seconds. CLIs try again after that.
	countWait = 20
	// keyTime is how long a key is used that the server has given for an hour.
	keyTime = 30 * time.Minute
	// headTime is how long a CLI may take to send the head of a request.
	headTime = 30 * time.Second
)

// StartMeter begins to carry calls. Close ends it.
func (s Server) StartMeter(ctx context.Context, m Metering) (*Meter, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "The calls of the run cannot be carried: no port of this machine can be used.")
	}
	meter := &Meter{Metering: m, server: s, token: rand.Text(), listener: l, turn: make(chan struct{}, 1)}
	meter.turn <- struct{}{}
	meter.forward = &httputil.ReverseProxy{
		Rewrite: meter.rewrite, FlushInterval: -1,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			refuse(w, http.StatusBadGateway, "api_error", "Signalbox cannot be reached.")
		},
	}
	meter.serving = &http.Server{Handler: meter, ReadHeaderTimeout: headTime}
	go func() { _ = meter.serving.Serve(l) }()
	return meter, nil
}

// Close ends the calls that are under way.
func (m *Meter) Close() { _ = m.serving.Close() }

// Metered is where the CLI makes its calls.
func (m *Meter) Metered() *engine.Metered {
	return &engine.Metered{URL: "http://" + m.listener.Addr().String() + "/v1", Variable: TokenVariable}
}

// Env is what the CLI has to have in its environment.
func (m *Meter) Env() []string { return []string{TokenVariable + "=" + m.token} }

// upstream is what a call needs on its way to the server.
type upstream struct {
	base *url.URL
	key  string
}

type upstreamKey struct{}

// ServeHTTP carries one call.
func (m *Meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(given), []byte(m.token)) != 1 {
		refuse(w, http.StatusUnauthorized, "authentication_error", "Only the CLI of the run calls its models here.")
		return
	}
	select {
	case <-m.turn:
		defer func() { m.turn <- struct{}{} }()
	case <-r.Context().Done():
		return
	}
	up, err := m.admit(r.Context())
	var stopped process.StoppedError
	switch {
	case errors.As(err, &stopped):
		m.Stop(stopped)
		refuse(w, http.StatusForbidden, "permission_error", "The run is told to stop: "+stopped.Reason+".")
		return
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "overloaded_error", fault.From(err).Message)
		return
	}
	seen := &answer{ResponseWriter: w}
	m.forward.ServeHTTP(seen, r.WithContext(context.WithValue(r.Context(), upstreamKey{}, up)))
	// What a person has to decide, or has refused, is no call yet, and a list of models is none.
	if r.Method == http.MethodPost && seen.status/100 == 2 && w.Header().Get("X-Amp-Gate-Id") == "" {
		m.answered++
	}
}

// answer remembers the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// admit waits until the server has counted all calls so far, and finds out whether another one may be made.
func (m *Meter) admit(ctx context.Context) (up upstream, err error) {
	wait := 0
	if m.answered > 0 {
		wait = countWait
	}
	var o run.Orders
	if err := m.server.call(ctx, fmt.Sprintf("/runs/%s/pulse?wait=%d", m.Run, wait), run.Pulse{Calls: m.answered}, &o); err != nil {
		return up, err
	}
	switch {
	case o.Stop != "":
		return up, process.StoppedError{Reason: o.Stop, Cause: o.Cause}
	case o.Ended:
		return up, process.StoppedError{Reason: "the server has completed the run"}
	case o.Calls < m.answered:
		return up, fault.New(fault.Overloaded, "The call before this one is not counted yet. Try again in a moment.")
	}
	if m.AgentKey == "" || !m.asked.IsZero() && time.Since(m.asked) > keyTime {
		var a run.Access
		if err := m.server.call(ctx, "/runs/"+m.Run+"/access", struct{}{}, &a); err != nil {
			return up, err
		}
		m.AgentKey, m.asked = a.Key, time.Now()
	}
	base, err := m.server.URL()
	if err != nil {
		return up, err
	}
	up.key = m.AgentKey
	up.base, err = url.Parse(base)
	return up, err
}

// rewrite addresses a call to the model proxy, as the agent of the run.
func (m *Meter) rewrite(r *httputil.ProxyRequest) {
	up, _ := r.In.Context().Value(upstreamKey{}).(upstream)
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = up.base.Scheme, up.base.Host, ""
	r.Out.URL.Path, r.Out.URL.RawPath = strings.TrimSuffix(up.base.Path, "/")+"/v1/proxy/"+m.Provider+r.In.URL.Path, ""
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Amp-") || name == "X-Api-Key" {
			r.Out.Header.Del(name)
		}
	}
	r.Out.Header.Set("Authorization", "Bearer "+up.key)
	if m.Key != "" { // the agent is then named beside it
		r.Out.Header.Set("Authorization", "Bearer "+m.Key)
		r.Out.Header.Set("X-Api-Key", up.key)
	}
	r.Out.Header.Set("X-Amp-Run", m.Run)
	if m.Within != "" {
		r.Out.Header.Set(behalf.WithinHeader, m.Within)
	}
}

// refuse answers with an error in the form of the provider.
func refuse(w http.ResponseWriter, status int, kind, message string) {
	body, err := wire.Marshal(map[string]any{
		"error": map[string]any{"message": message, "type": kind, "code": kind, "param": nil},
	})
	if err != nil {
		body = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusForbidden {
		w.Header().Set("X-Should-Retry", "false")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
