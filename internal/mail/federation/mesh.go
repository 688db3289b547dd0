package federation

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

const (
	hostTime  = 10 * time.Second // for one call that carries a message
	askTime   = 3 * time.Second  // for one call that asks for an agent; a sender waits for it
	foundTime = time.Minute      // that the host of an agent is cached; agents seldom move
)

// FindHost finds the host that has an agent which is not on this one: the host that the address
// names in place of the tenant, or the one that says that it has the agent. It asks all hosts at
// once. "" means that all of them said no. MSG-88: if one did not answer and no other has the
// agent, the result is unknown, which is an error.
func (f *Federation) FindHost(ctx context.Context, a amp.Address) (Target, error) {
	if _, named := f.options.Mesh.Hosts[a.Tenant]; named {
		return targetHost(a.Tenant), nil
	}
	now, address := f.core.Now(), a.String()
	if host, known := f.found.get(address, now); known {
		return targetHost(host), nil
	}
	var mu sync.Mutex
	var host string
	var asked errgroup.Group
	for name := range f.options.Mesh.Hosts {
		asked.Go(func() error {
			there, err := f.askHost(ctx, name, address)
			mu.Lock()
			defer mu.Unlock()
			// If two hosts claim the agent, the first answer wins: addresses are not compared between hosts.
			if there {
				host = cmp.Or(host, name)
			}
			return err
		})
	}
	// An answer of one host is enough, whatever the others did.
	if err := asked.Wait(); host == "" {
		return "", err
	}
	f.found.put(address, host, now.Add(foundTime))
	return targetHost(host), nil
}

// askHost asks one host whether it has an agent. Anything but 200 and 404 is an error, since "no"
// would become a 404 to the sender.
func (f *Federation) askHost(ctx context.Context, host, address string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	silent := func(err error) error {
		return fault.Wrap(err, fault.HostUnavailable,
			"%s is not here, and the host %s, which may have it, does not answer. Send the message again later.", address,
			host).About("to")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		f.options.Mesh.Hosts[host].URL+"/api/agents/by-name/"+url.PathEscape(address), nil)
	if err != nil {
		return false, silent(err)
	}
	f.signForHost(req, host, nil)
	res, err := f.hosts.Do(req)
	if err != nil {
		return false, silent(err)
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	}
	return false, silent(fmt.Errorf("answered %s", res.Status))
}

// signForHost names this host in a request and proves it with the secret shared with the other
// one (MSG-85). Without a secret the other host must have this network in mail.mesh.open.
func (f *Federation) signForHost(req *http.Request, host string, body []byte) {
	at := strconv.FormatInt(f.core.Now().Unix(), 10)
	req.Header.Set(HostHeader, f.options.Mesh.Host)
	req.Header.Set("X-AMP-Timestamp", at)
	if secret := f.options.Mesh.Hosts[host].Secret.Reveal(); secret != "" {
		req.Header.Set("X-AMP-Mesh-Auth", hostProof(secret, at, f.options.Mesh.Host, body))
	}
}

// hostProof is the value of X-AMP-Mesh-Auth: an HMAC over time, calling host and digest of the
// body, so that none of them can be exchanged.
func hostProof(secret, at, host string, body []byte) string {
	sum := sha256.Sum256(body)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(at + "." + host + "." + hex.EncodeToString(sum[:])))
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}
