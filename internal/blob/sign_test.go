package blob

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/internal/wire"
)

// The example that Amazon's documents of version 4 signatures give for a GET with a range.
func TestTheSignatureOfAmazonsExample(t *testing.T) {
	t.Parallel()
	o := S3{
		Region: "us-east-1", AccessKey: "AKIAIOSFODNN7EXAMPLE",
		SecretKey: wire.NewSecret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://examplebucket.s3.amazonaws.com/test.txt",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", "bytes=0-9")
	o.sign(req, emptySHA256, time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC))
	if got := req.Header.Get("Authorization"); !strings.HasSuffix(got,
		"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"+
			"Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41") {
		t.Error(got)
	}
}
