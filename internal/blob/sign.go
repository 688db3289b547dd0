package blob

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
)

// sign signs a request with AWS Signature Version 4: an HMAC, with a key derived for the day and
// region, over method, path, query, all headers and the digest of the body. It must be the last
// change to the request. Header values are trimmed and not folded, since ours have no inner blanks.
func (o *S3) sign(req *http.Request, bodySHA256 string, at time.Time) {
	moment := at.UTC().Format("20060102T150405Z")
	scope := moment[:8] + "/" + o.Region + "/s3/aws4_request"
	req.Header.Set("X-Amz-Date", moment)
	req.Header.Set("X-Amz-Content-Sha256", bodySHA256)

	// Host is not in req.Header, and must be signed.
	values := map[string]string{"host": req.URL.Host}
	names := []string{"host"}
	for name := range req.Header {
		lower := strings.ToLower(name)
		values[lower] = strings.TrimSpace(req.Header.Get(name))
		names = append(names, lower)
	}
	slices.Sort(names)
	var headers strings.Builder
	for _, name := range names {
		headers.WriteString(name + ":" + values[name] + "\n")
	}
	signed := strings.Join(names, ";")
	text := strings.Join([]string{
		req.Method, req.URL.EscapedPath(), req.URL.RawQuery, headers.String(), signed,
		bodySHA256,
	}, "\n")
	text = strings.Join([]string{"AWS4-HMAC-SHA256", moment, scope, hexSHA256(text)}, "\n")
	key := []byte("AWS4" + o.SecretKey.Reveal())
	// The key is derived step by step: day, region, service, a constant.
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	req.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential="+o.AccessKey+"/"+scope+",SignedHeaders="+signed+",Signature="+
			hex.EncodeToString(mac(key, text)))
}

// mac is HMAC-SHA256.
func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexSHA256(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
