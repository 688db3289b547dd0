package amp

import (
	"embed"
	"io/fs"
)

//go:embed vectors
var vectorFiles embed.FS

// Vectors are documents and scenarios with the outcomes that the rules demand, for our own tests
// and for `conform task` against other servers: the folders valid, invalid and scenarios.
func Vectors() fs.FS {
	vectors, err := fs.Sub(vectorFiles, "vectors")
	if err != nil {
		panic(err) // it is embedded
	}
	return vectors
}
