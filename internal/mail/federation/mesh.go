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
	hostTime  = 10 * time.Second // how long a host may take to take a message
	askTime   = 3 * time.Second  // how long a host may take to say whether an agent is there
	foundTime = time.Minute      // how long it is remembered where an agent is
)

// Elsewhere finds the host that has an agent of our provider, who is not here: the one that
// the address names in the place of a tenant, or the one that says so. "" when all say that
// they do not, or when there is no mesh.
func (f *Federation) Elsewhere(ctx context.Context, a amp.Address) (Target, error) {
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
			there, err := f.ask(ctx, name, address)
			mu.Lock()
			defer mu.Unlock()
			if there {
				host = cmp.Or(host, name)
			}
			return err
		})
	}
	if err := asked.Wait(); host == "" {
		return "", err
	}
	f.found.put(address, host, now.Add(foundTime))
	return targetHost(host), nil
}

// ask asks a host whether it has an agent.
func (f *Federation) ask(ctx context.Context, host, address string) (bool, error) {
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

// signForHost says who we are, and proves it with the secret that we share with the host.
func (f *Federation) signForHost(req *http.Request, host string, body []byte) {
	at := strconv.FormatInt(f.core.Now().Unix(), 10)
	req.Header.Set(HostHeader, f.options.Mesh.Host)
	req.Header.Set("X-AMP-Timestamp", at)
	if secret := f.options.Mesh.Hosts[host].Secret.Reveal(); secret != "" {
		req.Header.Set("X-AMP-Mesh-Auth", hostProof(secret, at, f.options.Mesh.Host, body))
	}
}

// hostProof is HMAC-SHA256 over the time, the calling host and the digest of the body.
func hostProof(secret, at, host string, body []byte) string {
	sum := sha256.Sum256(body)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(at + "." + host + "." + hex.EncodeToString(sum[:])))
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}
