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

// S3 says where a bucket is.
type S3 struct {
	Endpoint  string // the store's address, such as https://s3.eu-central-1.amazonaws.com
	Region    string
	Bucket    string
	AccessKey string
	SecretKey wire.Secret
}

// Bucket keeps bytes in a store that speaks S3. It makes four calls of that protocol and is
// small for it: the client libraries would make the program larger by half.
type Bucket struct {
	S3
	client *http.Client
}

// OpenBucket opens a bucket, and sees that it is there and can be read.
func OpenBucket(ctx context.Context, o S3) (*Bucket, error) {
	b := &Bucket{S3: o, client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
	if _, err := b.list(ctx, url.Values{"max-keys": {"1"}}); err != nil {
		return nil, fault.Wrap(err, fault.StoreUnavailable,
			"The bucket %s for attachments cannot be read. Check mail.s3.endpoint, mail.s3.bucket and its keys.", o.Bucket)
	}
	return b, nil
}

// emptySHA256 is that of no body.
var emptySHA256 = hexSHA256("")

// do makes a call. Whatever is not a 2xx is an error, fs.ErrNotExist for a 404.
func (b *Bucket) do(ctx context.Context, method, name string, query url.Values,
	prepare func(*http.Request) string,
) (*http.Response, error) {
	address := strings.TrimSuffix(b.Endpoint, "/") + "/" + b.Bucket
	if name != "" {
		address += "/" + name
	}
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	sum := emptySHA256
	if prepare != nil {
		sum = prepare(req)
	}
	b.sign(req, sum, time.Now())
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	_ = res.Body.Close()
	err = fmt.Errorf("the store answered %s %s with %s: %s", method, req.URL.Path, res.Status, text)
	if res.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return nil, err
}

// Put keeps what r gives, at most limit bytes. With an error, nothing is kept: it is all
// here, with its size and digest, before the store hears of it.
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
		if n == 0 {
			req.Body = http.NoBody
		}
		req.Header.Set("If-None-Match", "*") // a name is written once
		return kept.SHA256
	})
	if err != nil {
		return Stored{}, err
	}
	return kept, res.Body.Close()
}

// Get opens what is kept under a name; fs.ErrNotExist when there is nothing.
func (b *Bucket) Get(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	if !nameForm.MatchString(name) {
		return nil, badName(name)
	}
	o := &object{bucket: b, ctx: ctx, name: name}
	res, err := o.open() //nolint:bodyclose // closed with the object
	if err != nil {
		return nil, err
	}
	o.body, o.size = res.Body, res.ContentLength
	return o, nil
}

// object reads what is in a bucket. To seek costs another call, and only when something is
// read then.
type object struct {
	bucket   *Bucket
	ctx      context.Context //nolint:containedctx // it is one reader's, of one call
	name     string
	size     int64
	position int64
	body     io.ReadCloser // nil when the position is not that of a call
}

func (o *object) open() (*http.Response, error) {
	return o.bucket.do(o.ctx, http.MethodGet, o.name, nil, func(req *http.Request) string {
		if o.position > 0 {
			req.Header.Set("Range", "bytes="+strconv.FormatInt(o.position, 10)+"-")
		}
		return emptySHA256
	})
}

// Read reads on from the position.
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

// Seek sets the position.
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
	if offset != o.position {
		_ = o.Close()
		o.position, o.body = offset, nil
	}
	return offset, nil
}

// Close ends the call.
func (o *object) Close() error {
	if o.body == nil {
		return nil
	}
	return o.body.Close()
}

// Remove removes what is kept under a name, if there is anything.
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

// listing is a page of what is in a bucket.
type listing struct {
	Contents []struct {
		Key          string    `xml:"Key"`
		LastModified time.Time `xml:"LastModified"`
	} `xml:"Contents"`
	NextContinuationToken string `xml:"NextContinuationToken"`
}

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

// Before lists names that were written before a moment.
func (b *Bucket) Before(ctx context.Context, t time.Time) ([]string, error) {
	var names []string
	query := url.Values{}
	for {
		page, err := b.list(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, c := range page.Contents {
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

// temporary is a file that is gone with its end.
func temporary() (*os.File, error) {
	file, err := os.CreateTemp("", "attachment-")
	if err != nil {
		return nil, err
	}
	return file, os.Remove(file.Name()) // the open file stays
}
