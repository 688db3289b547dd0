package sink

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"signalbox/internal/wire"
)

// CheckCollector checks the address of a collector. Its error continues a sentence that begins with the setting.
func CheckCollector(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.Fragment != "" {
		return fmt.Errorf("should be an address such as https://collector.example.com/signalbox")
	}
	return nil
}

// collector POSTs batches as lines of JSON. The numbers of the first and the last entry are the idempotency key. Only
// 2xx means that the collector has the batch; whatever else it answers, nothing is passed over.
type collector struct {
	to, token wire.Secret
	client    *http.Client
}

func newCollector(to, token wire.Secret, roots *x509.CertPool) *collector {
	return &collector{to, token, &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 1, ForceAttemptHTTP2: true,
		},
		// Another address would get what was meant for this one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *collector) send(ctx context.Context, b batch) error {
	text := append(bytes.Join(b.lines, []byte("\n")), '\n')
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.to.Reveal(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("User-Agent", "Signalbox")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("%d-%d", b.first, b.last))
	if token := c.token.Reveal(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem)) // the status says whether it has them
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("the collector answered %d to entries %d to %d: %s", res.StatusCode, b.first, b.last, answer)
	}
	return nil
}
