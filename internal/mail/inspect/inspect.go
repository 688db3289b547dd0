// Package inspect is the built-in scan of attachments: what a file is by its first bytes,
// whether that is what it was said to be, what is in it if it is an archive, and whether
// its text tries to take its reader over. It is no virus scanner, and knows nothing of who
// sends what.
package inspect

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"signalbox/internal/mail/injection"
)

// The outcomes of a scan.
const (
	Clean      = "clean"
	Suspicious = "suspicious" // delivered, with a warning
	Rejected   = "rejected"   // and removed
)

// blockedTypes are not taken, whatever is in them; all are below application/.
var blockedTypes = []string{
	"x-executable", "x-msdos-program", "x-msdownload", "x-dosexec", "vnd.microsoft.portable-executable",
	"x-mach-o-executable", "x-sh", "x-shellscript", "x-csh",
	"x-perl", "x-python-code", "hta", "x-bat", "java-archive", "vnd.apple.installer+xml", "x-rpm", "x-deb", "x-msi",
}

// executables are how programs begin.
var executables = []struct{ start, what string }{
	{"MZ", "a program for Windows"},
	{"\x7fELF", "a program for Linux"},
	{"#!", "a script"},
	{"\xfe\xed\xfa\xce", "a program for macOS"},
	{"\xfe\xed\xfa\xcf", "a program for macOS"},
	{"\xce\xfa\xed\xfe", "a program for macOS"},
	{"\xcf\xfa\xed\xfe", "a program for macOS"},
	{"\xca\xfe\xba\xbe", "a program for macOS or Java"},
	{"\xed\xab\xee\xdb", "a package of programs"},
	{"!<arch>\ndebian", "a package of programs"},
}

// eicar is the text that every scanner takes for a virus, in two parts so that this file
// is not taken for one.
var eicar = []byte(`X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR` + `-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*`)

// The limits of looking into archives.
const (
	maxLevels   = 3
	maxEntries  = 10_000
	maxUnpacked = 256 << 20
	maxRatio    = 200
	maxText     = 1 << 20 // of which so much is searched
)

// refusal is why a file is not taken.
type refusal struct{ why string }

func (r refusal) Error() string { return r.why }

func refuseFile(format string, args ...any) error { return refusal{fmt.Sprintf(format, args...)} }

// inspection is one look at a file.
type inspection struct {
	unpacked, packed int64
	entries          int
	flags            []string
}

// File says what becomes of a file, and why.
func File(file io.ReaderAt, size int64, declared string) (status, note string, err error) {
	in := &inspection{packed: size}
	err = in.file(io.NewSectionReader(file, 0, size), declared)
	if r, ok := errors.AsType[refusal](err); ok {
		return Rejected, r.why, nil
	}
	if err != nil {
		return "", "", err
	}
	if len(in.flags) > 0 {
		return Suspicious, "The text has marks of an attempt to take its reader over: " + strings.Join(in.flags, ", ") + ".",
			nil
	}
	return Clean, "", nil
}

func (in *inspection) file(r *io.SectionReader, declared string) error {
	if err := blockedType(declared); err != nil {
		return err
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	if err := mismatch(head[:n], declared); err != nil {
		return err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return in.content(r, 0)
}

func blockedType(declared string) error {
	kind, _, _ := mime.ParseMediaType(declared)
	if rest, ok := strings.CutPrefix(strings.ToLower(kind), "application/"); ok && slices.Contains(blockedTypes, rest) {
		return refuseFile("Files of the type %.80s are not taken.", kind)
	}
	return nil
}

// mismatch finds a file that is not what it was said to be. A type that says nothing, and
// text that could be anything, are no mismatch.
func mismatch(head []byte, declared string) error {
	kind, _, _ := mime.ParseMediaType(declared)
	said, _, _ := strings.Cut(strings.ToLower(kind), "/")
	if len(head) == 0 || said == "" || kind == "application/octet-stream" {
		return nil
	}
	found, _, _ := mime.ParseMediaType(http.DetectContentType(head))
	is, _, _ := strings.Cut(found, "/")
	media := []string{"image", "audio", "video", "font"}
	switch {
	case is == said, found == "application/octet-stream" && !slices.Contains(media, said) && said != "text":
		return nil
	case slices.Contains(media, is), slices.Contains(media, said) && !strings.HasSuffix(kind, "+xml"):
	case said == "text" && found == "application/octet-stream" && utf8.Valid(trimRune(head)):
		return nil
	case is == "text": // source code, JSON, SVG
		return nil
	}
	return refuseFile("The file was said to be %.80s, and begins like %s.", kind, found)
}

// trimRune cuts off a character that the end of the head has cut.
func trimRune(head []byte) []byte {
	for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head); i++ {
		head = head[:len(head)-1]
	}
	return head
}

// content looks into a file, and into what is packed in it.
func (in *inspection) content(r io.Reader, level int) error {
	if level > maxLevels {
		return refuseFile("Archives are packed into one another more than %d deep.", maxLevels)
	}
	// What is packed is small enough to be held: the whole has a limit.
	data, err := in.unpack(r, level)
	if err != nil {
		return err
	}
	for _, e := range executables {
		if bytes.HasPrefix(data, []byte(e.start)) {
			return refuseFile("The file is %s.", e.what)
		}
	}
	if bytes.Contains(data, eicar) {
		return refuseFile("The file is the test virus EICAR.")
	}
	switch {
	case bytes.HasPrefix(data, []byte("PK\x03\x04")):
		return in.zip(data, level)
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		return in.gzip(data, level)
	case len(data) > 262 && string(data[257:262]) == "ustar":
		return in.tar(data, level)
	}
	if text := data[:min(len(data), maxText)]; utf8.Valid(trimRune(text)) {
		for _, flag := range injection.Scan(string(trimRune(text))) {
			// A program's text is full of commands; that is no trick.
			if flag != injection.CommandInjection && flag != injection.UnicodeTricks && !slices.Contains(in.flags, flag) {
				in.flags = append(in.flags, flag)
			}
		}
	}
	return nil
}

// unpack reads what is in a file, as far as the limits of the whole allow.
func (in *inspection) unpack(r io.Reader, level int) ([]byte, error) {
	left := maxUnpacked - in.unpacked
	if level > 0 {
		left = min(left, max(in.packed*maxRatio, 1<<20)-in.unpacked)
	}
	data, err := io.ReadAll(io.LimitReader(r, left+1))
	if int64(len(data)) > left {
		return nil, refuseFile("What is packed in the file is more than %d times its size, or more than %d MiB.", maxRatio,
			maxUnpacked>>20)
	}
	if err != nil && level > 0 {
		return nil, refuseFile("The archive is damaged.")
	}
	if level > 0 {
		in.unpacked += int64(len(data))
	}
	return data, err
}

func (in *inspection) entry(name string) error {
	in.entries++
	if in.entries > maxEntries {
		return refuseFile("The archive has more than %d files.", maxEntries)
	}
	if name != "" && !filepath.IsLocal(strings.ReplaceAll(name, `\`, "/")) {
		return refuseFile("The archive has a file outside of its folder.")
	}
	return nil
}

func (in *inspection) zip(data []byte, level int) error {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return refuseFile("The archive is damaged.")
	}
	for _, f := range archive.File {
		if err := in.entry(f.Name); err != nil {
			return err
		}
		if f.Flags&1 != 0 {
			return refuseFile("The archive is encrypted, so that nobody can look into it.")
		}
		if f.FileInfo().IsDir() {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return refuseFile("The archive is damaged.")
		}
		err = in.content(r, level+1)
		_ = r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (in *inspection) gzip(data []byte, level int) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return refuseFile("The archive is damaged.")
	}
	if err := in.entry(""); err != nil {
		return err
	}
	return in.content(r, level+1)
}

func (in *inspection) tar(data []byte, level int) error {
	archive := tar.NewReader(bytes.NewReader(data))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return refuseFile("The archive is damaged.")
		}
		if err := in.entry(header.Name); err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := in.content(archive, level+1); err != nil {
			return err
		}
	}
}
