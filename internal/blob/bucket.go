package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// S3 is the address and the keys of a bucket.
type S3 struct {
	Endpoint  string // the store's address, such as https://s3.eu-central-1.amazonaws.com
	Region    string
	Bucket    string
	AccessKey string
	SecretKey wire.Secret
}

// Bucket stores blobs in an S3 bucket. It makes four calls of that protocol by hand: the client
// libraries would make the program larger by half.
//
// It is the store for several nodes: each sees what the others wrote.
type Bucket struct {
	S3
	client *http.Client
}

// OpenBucket opens a bucket and lists it once, so that a wrong address or key stops the server's
// start and not the first upload.
func OpenBucket(ctx context.Context, o S3) (*Bucket, error) {
	// No redirects: the signature covers the host.
	b := &Bucket{S3: o, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
	if _, err := b.list(ctx, url.Values{"max-keys": {"1"}}); err != nil {
		return nil, fault.Wrap(err, fault.StoreUnavailable,
			"The bucket %s for attachments cannot be read. Check mail.s3.endpoint, mail.s3.bucket and its keys.", o.Bucket)
	}
	return b, nil
}

// emptySHA256 is the digest of an empty body, which signatures need.
var emptySHA256 = hexSHA256("")

// do makes one signed call. prepare may change the request, and returns the digest of its body; nil is
// for no body. Any status but 2xx is an error, fs.ErrNotExist for 404. The caller closes the body.
func (b *Bucket) do(ctx context.Context, method, name string, query url.Values,
	prepare func(*http.Request) string,
) (*http.Response, error) {
	// Path style, which every S3 server understands; bucket names in the host need DNS.
	address := strings.TrimSuffix(b.Endpoint, "/") + "/" + b.Bucket
	if name != "" {
		address += "/" + name
	}
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	// The signature is over this text, in which a blank must be %20.
	req.URL.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	sum := emptySHA256
	if prepare != nil {
		sum = prepare(req)
	}
	// The store refuses a signature whose time is off by more than 15 minutes.
	b.sign(req, sum, time.Now())
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	// The store's XML says more than the status; it goes to the log only.
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	_ = res.Body.Close()
	err = fmt.Errorf("the store answered %s %s with %s: %s", method, req.URL.Path, res.Status, text)
	if res.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return nil, err
}

// Put implements Store. The bytes are copied to a temporary file first: the signature needs their
// digest before the call, and an upload that breaks off or is too large never reaches the bucket.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader, limit int64) (Stored, error) {
	if !nameForm.MatchString(name) {
		return Stored{}, badName(name)
	}
	file, err := temporary()
	if err != nil {
		return Stored{}, err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(r, limit+1))
	if err == nil && n > limit {
		err = ErrTooLarge
	}
	if err != nil {
		return Stored{}, err
	}
	kept := Stored{n, hex.EncodeToString(sum.Sum(nil))}
	res, err := b.do(ctx, http.MethodPut, name, nil, func(req *http.Request) string {
		req.Body, req.ContentLength = io.NopCloser(io.NewSectionReader(file, 0, n)), n
		// net/http would send a body of unknown length otherwise, which the signature does not fit.
		if n == 0 {
			req.Body = http.NoBody
		}
		req.Header.Set("If-None-Match", "*") // refuse a name that is in use
		return kept.SHA256
	})
	if err != nil {
		return Stored{}, err
	}
	return kept, res.Body.Close()
}

// Get implements Store. The first call is made now, so that a missing blob is an error of Get.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if !nameForm.MatchString(name) {
		return nil, badName(name)
	}
	o := &object{bucket: b, ctx: ctx, name: name}
	res, err := o.open() //nolint:bodyclose // closed with the object
	if err != nil {
		return nil, err
	}
	// The answer is read as it arrives, not loaded into memory.
	o.body, o.size = res.Body, res.ContentLength
	return o, nil
}

// object reads a blob of a bucket. Seeking is free; the next read after it makes another call, from
// the new position.
type object struct {
	bucket   *Bucket
	ctx      context.Context //nolint:containedctx // it is one reader's, of one call
	name     string
	size     int64
	position int64
	body     io.ReadCloser // the answer that is being read, nil after a seek
}

// open makes a call for the bytes from the position on.
func (o *object) open() (*http.Response, error) {
	return o.bucket.do(o.ctx, http.MethodGet, o.name, nil, func(req *http.Request) string {
		if o.position > 0 {
			req.Header.Set("Range", "bytes="+strconv.FormatInt(o.position, 10)+"-")
		}
		return emptySHA256
	})
}

// Read implements io.Reader. The size is known, so that no call is made for the end.
func (o *object) Read(p []byte) (int, error) {
	if o.position >= o.size {
		return 0, io.EOF
	}
	if o.body == nil {
		res, err := o.open() //nolint:bodyclose // closed with the object
		if err != nil {
			return 0, err
		}
		o.body = res.Body
	}
	n, err := o.body.Read(p)
	o.position += int64(n)
	return n, err
}

// Seek implements io.Seeker. A call that is under way is given up if the position changes.
func (o *object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.position
	case io.SeekEnd:
		offset += o.size
	}
	if offset < 0 {
		return 0, errors.New("a position before the beginning")
	}
	// http.ServeContent seeks to the end and back to learn the size, which must not cost a call.
	if offset != o.position {
		_ = o.Close()
		o.position, o.body = offset, nil
	}
	return offset, nil
}

// Close implements io.Closer. It may be called twice.
func (o *object) Close() error {
	if o.body == nil {
		return nil
	}
	return o.body.Close()
}

// Remove implements Store.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	if !nameForm.MatchString(name) {
		return badName(name)
	}
	res, err := b.do(ctx, http.MethodDelete, name, nil, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// listing is the part of a page of ListObjectsV2 that is used.
type listing struct {
	Contents []struct {
		Key          string    `xml:"Key"`
		LastModified time.Time `xml:"LastModified"`
	} `xml:"Contents"`
	NextContinuationToken string `xml:"NextContinuationToken"`
}

// list reads one page of the names in the bucket.
func (b *Bucket) list(ctx context.Context, query url.Values) (listing, error) {
	var page listing
	query.Set("list-type", "2")
	res, err := b.do(ctx, http.MethodGet, "", query, nil)
	if err != nil {
		return page, err
	}
	defer func() { _ = res.Body.Close() }()
	return page, xml.NewDecoder(res.Body).Decode(&page)
}

// Before implements Store. Names that are not ours are skipped: the bucket may hold other things.
func (b *Bucket) Before(ctx context.Context, t time.Time) ([]string, error) {
	var names []string
	query := url.Values{}
	for {
		page, err := b.list(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, c := range page.Contents {
			// By the store's clock, which may differ by seconds from ours; sweeps leave an hour.
			if c.LastModified.Before(t) && nameForm.MatchString(c.Key) {
				names = append(names, c.Key)
			}
		}
		if page.NextContinuationToken == "" {
			return names, nil
		}
		query = url.Values{"continuation-token": {page.NextContinuationToken}}
	}
}

// temporary is an open file without a name: its space is free again when it is closed, however the
// process ends.
func temporary() (*os.File, error) {
	file, err := os.CreateTemp("", "attachment-")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name()) // the open file stays usable
}
