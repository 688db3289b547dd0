package amp

import (
	"embed"
	"io/fs"
)

//go:embed vectors
var vectorFiles embed.FS

// Vectors are documents and scenarios with what should become of them, for us and for
// whoever else speaks the protocol: the folders valid, invalid and scenarios.
func Vectors() fs.FS {
	vectors, err := fs.Sub(vectorFiles, "vectors")
	if err != nil {
		panic(err) // it is embedded
	}
	return vectors
}
