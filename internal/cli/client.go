package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/server"
	"signalbox/internal/wire"
)

// codeUnreachable is the command line's own: the server never sends it.
const codeUnreachable fault.Code = "unreachable"

// client calls the operators' API.
type client struct {
	base, token string
	http        http.Client
}

// dataDir is the data folder for commands that only read it.
func (a *app) dataDir() string {
	for _, dir := range []string{a.data, os.Getenv("SIGNALBOX_DATA")} {
		if dir != "" {
			return dir
		}
	}
	return server.Settings[0].Default
}

// client finds the server and the token: flag, environment, data folder.
func (a *app) client() (*client, error) {
	base, err := a.address()
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(os.Getenv("SIGNALBOX_TOKEN"))
	if token == "" {
		text, err := os.ReadFile(filepath.Join(a.dataDir(), server.TokenFile))
		if err != nil {
			return nil, fault.Wrap(err, fault.Unauthenticated, "No operator token was found. Put one into SIGNALBOX_TOKEN, or say with --data where the server's data folder is.")
		}
		token = strings.TrimSpace(string(text))
	}
	return &client{base: base, token: token}, nil
}

// address finds the server.
func (a *app) address() (string, error) {
	base, from := a.server, "--server"
	if base == "" {
		base, from = os.Getenv("SIGNALBOX_SERVER"), "SIGNALBOX_SERVER"
	}
	if base == "" {
		text, err := os.ReadFile(filepath.Join(a.dataDir(), server.URLFile))
		if err != nil {
			return "", fault.New(codeUnreachable, "No server was found: there is no data folder at %s. Start one with `signalbox up`, or say where it is with --data, --server or SIGNALBOX_SERVER.", a.dataDir())
		}
		base, from = strings.TrimSpace(string(text)), filepath.Join(a.dataDir(), server.URLFile)
	}
	if u, err := url.Parse(base); err != nil || u.Host == "" {
		return "", usage("The server's address (from %s) should look like http://127.0.0.1:7446, and is %q.", from, base)
	}
	return strings.TrimSuffix(base, "/"), nil
}

// yamlFile is a body that is sent as it is.
type yamlFile []byte

// encode is a body as it goes over the wire, and its media type.
func encode(body any) (io.Reader, string, error) {
	switch body := body.(type) {
	case nil:
		return nil, "", nil
	case yamlFile:
		return bytes.NewReader(body), "application/yaml", nil
	}
	data, err := wire.Marshal(body)
	return bytes.NewReader(data), "application/json", err
}

// do sends a request and returns an answer with a good status.
func (c *client) do(ctx context.Context, method, path string, body any, header ...string) (*http.Response, error) {
	content, media, err := encode(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, usage("%q is not an address of a server.", c.base)
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			return nil, fault.Wrap(err, codeUnreachable, "The certificate of %s is not trusted here, or is for another name. Give the name it is for with --server, and a file with its authority in SSL_CERT_FILE.", c.base)
		}
		return nil, fault.Wrap(err, codeUnreachable, "The server at %s cannot be reached. Start it with `signalbox up`, or give its address with --server.", c.base)
	}
	if res.StatusCode >= 400 {
		defer func() { _ = res.Body.Close() }()
		return nil, readError(res)
	}
	return res, nil
}

func readError(res *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	var e wire.ErrorBody
	if err := wire.Unmarshal(data, &e); err != nil || e.Message == "" {
		if refused := taskRefusal(data); refused != nil {
			return refused
		}
		return fault.New(fault.Internal, "The server answered %s, and not as a Signalbox does. Check the address.", res.Status)
	}
	return &fault.Error{Code: e.Error, Message: e.Message, Field: e.Field, Details: e.Details}
}

// call sends a request and decodes the answer, nil for none.
func (c *client) call(ctx context.Context, method, path string, body, answer any, header ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	res, err := c.do(ctx, method, path, body, header...)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if answer == nil {
		return nil
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return fault.Wrap(err, codeUnreachable, "The server's answer broke off. Try again.")
	}
	return wire.Unmarshal(data, answer)
}

// call finds the server and calls it once.
func (a *app) call(ctx context.Context, method, path string, body, answer any, header ...string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	return c.call(ctx, method, path, body, answer, header...)
}

// download writes what the server has at the path to a file, whole or not at all,
// or to standard output.
func (a *app) download(ctx context.Context, path, out string, header ...string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	res, err := c.do(ctx, http.MethodGet, path, nil, header...)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if out != "" {
		return a.saveTo(out, res.Body)
	}
	_, err = io.Copy(a.out, res.Body)
	return brokeOff(err)
}

func brokeOff(err error) error {
	if err != nil {
		return fault.Wrap(err, fault.Internal, "The download broke off and is not complete. Run it again; the server's log says why.")
	}
	return nil
}

func (a *app) saveTo(path string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".download-*")
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write to %s. Choose another place with --out.", filepath.Dir(path))
	}
	defer func() { _ = os.Remove(f.Name()) }()
	n, err := io.Copy(f, r)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return brokeOff(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s. Choose another place with --out.", path)
	}
	_, _ = fmt.Fprintf(a.err, "Wrote %s (%s bytes). Check it with `signalbox %s verify %s`.\n", path, thousands(n), a.verifier, path)
	return nil
}
