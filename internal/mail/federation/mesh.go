package federation

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/wire"
)

const (
	hostTime  = 10 * time.Second // for one call that carries a message
	askTime   = 3 * time.Second  // for one call that asks for an agent; a sender waits for it
	foundTime = time.Minute      // that the host of an agent is cached; agents seldom move
)

// FindUnproved finds an agent on the hosts that share no secret with this one, which take no part in deciding who
// has an address (MSG-87). It asks all of them at once. "" means that all of them said no. MSG-88: if one did not
// answer and no other has the agent, the result is unknown, which is an error.
func (f *Federation) FindUnproved(ctx context.Context, address string) (host string, err error) {
	now := f.core.Now()
	if host, known := f.found.get(address, now); known {
		return host, nil
	}
	var mu sync.Mutex
	var asked errgroup.Group
	for name, there := range f.options.Mesh.Hosts {
		if there.Secret.Reveal() != "" {
			continue
		}
		asked.Go(func() error {
			there, err := f.askHost(ctx, name, address)
			mu.Lock()
			defer mu.Unlock()
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
	return host, nil
}

// Unavailable is the error of a host that does not answer.
func Unavailable(err error, address, host string) error {
	return fault.Wrap(err, fault.HostUnavailable,
		"%s is not here, and the host %s, which may have it, does not answer. Send the message again later.", address,
		host).About("to")
}

// askHost asks one host whether it has an agent. Anything but 200 and 404 is an error, since "no"
// would become a 404 to the sender.
func (f *Federation) askHost(ctx context.Context, host, address string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	silent := func(err error) error { return Unavailable(err, address, host) }
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

// CallHost makes a call to another host that shares a secret with this one, and reads its answer, which has to be
// proved by the same secret: whoever is between two hosts can neither ask nor answer.
func (f *Federation) CallHost(ctx context.Context, host, path string, body []byte) ([]byte, error) {
	there := f.options.Mesh.Hosts[host]
	req, err := post(ctx, there.URL+path, body)
	if err != nil {
		return nil, err
	}
	f.signForHost(req, host, body)
	res, err := f.hosts.Do(req)
	if err != nil {
		return nil, errors.New(deliver.ExplainDial(err).Text)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, amp.MaxBody))
	switch proof := res.Header.Get(ProofHeader); {
	case err != nil:
		return nil, err
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("answered %s: %.300s", res.Status, answer)
	case !hmac.Equal([]byte(proof), []byte(answerProof(there.Secret.Reveal(), req.Header.Get(ProofHeader), answer))):
		return nil, errors.New("answered without a proof of the secret that both hosts share")
	}
	return answer, nil
}

// OpenHost makes a call to another host whose answer is a file, for up to two minutes. The caller closes its body, and
// checks it by other means: it is not proved.
func (f *Federation) OpenHost(ctx context.Context, host, path string, body []byte) (*http.Response, error) {
	there, known := f.options.Mesh.Hosts[host]
	if !known {
		return nil, errors.New("the host is not configured any more")
	}
	req, err := post(ctx, there.URL+path, body)
	if err != nil {
		return nil, err
	}
	f.signForHost(req, host, body)
	patient := *f.hosts
	patient.Timeout = 2 * time.Minute
	return patient.Do(req)
}

// AnswerHost writes the answer to a call of another host that VerifyHost has proved, with a proof of its own.
func (f *Federation) AnswerHost(w http.ResponseWriter, c HostCall, v any) error {
	body, err := wire.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set(ProofHeader, answerProof(f.options.Mesh.Hosts[c.Host].Secret.Reveal(), c.Proof, body))
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
	return nil
}

// answerProof is the proof of an answer. It covers that of the call, so that the answer to another call is none.
func answerProof(secret, call string, body []byte) string {
	return hostProof(secret, "answer "+call, "", body)
}

// hostProof is the value of X-AMP-Mesh-Auth: an HMAC over time, calling host and digest of the
// body, so that none of them can be exchanged.
func hostProof(secret, at, host string, body []byte) string {
	sum := sha256.Sum256(body)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(at + "." + host + "." + hex.EncodeToString(sum[:])))
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}
