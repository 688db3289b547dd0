// Package inspect is the built-in scan of attachments (MSG-70, MSG-71): what a file is by its first
// bytes, whether that fits its declared type, what an archive contains, and whether a text has marks
// of injection. It is no virus scanner; clam.go asks one. It knows nothing of senders and messages.
//
// Archives are hostile input: the limits below bound depth, number of files, size and ratio of what
// is unpacked, for the whole file together. Nothing is ever written to disk.
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

// The verdicts of a scan, in the protocol's words.
const (
	Clean      = "clean"
	Suspicious = "suspicious" // delivered with the reason, and the sender is warned
	Rejected   = "rejected"   // never delivered; the bytes are removed
)

// blockedTypes are declared types that are refused whatever the content is; all are below
// application/. They are the protocol's and its recommendation, but for scripts.
var blockedTypes = []string{
	"x-executable", "x-msdos-program", "x-msdownload", "x-dosexec", "vnd.microsoft.portable-executable",
	"x-mach-o-executable", "hta", "java-archive", "vnd.apple.installer+xml", "x-rpm", "x-deb", "x-msi",
}

// scriptTypes are declared types of scripts; all are below
// application/ or text/. A script is a text that agents work on, so it is flagged and not refused.
var scriptTypes = []string{
	"x-sh", "x-shellscript", "x-csh", "x-perl", "x-python-code", "x-python", "x-ruby", "x-bat", "x-powershell",
}

// executables are the first bytes of programs, which are refused whatever their declared type is.
var executables = []struct{ start, what string }{
	{"MZ", "a program for Windows"},
	{"\x7fELF", "a program for Linux"},
	{"\xfe\xed\xfa\xce", "a program for macOS"},
	{"\xfe\xed\xfa\xcf", "a program for macOS"},
	{"\xce\xfa\xed\xfe", "a program for macOS"},
	{"\xcf\xfa\xed\xfe", "a program for macOS"},
	{"\xca\xfe\xba\xbe", "a program for macOS or Java"},
	{"\xed\xab\xee\xdb", "a package of programs"},
	{"!<arch>\ndebian", "a package of programs"},
}

// eicar is the test text that every virus scanner finds. It is in two parts, so that scanners do not
// find it in this file.
var eicar = []byte(`X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR` + `-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*`)

// The limits of unpacking, for one attachment.
const (
	maxLevels   = 3         // archives inside archives
	maxEntries  = 10_000    // files in all of them
	maxUnpacked = 256 << 20 // bytes of all of them
	maxRatio    = 200       // unpacked bytes for each byte of the attachment
	maxText     = 1 << 20   // bytes of a text that are searched for injection
)

// refusal is a reason to reject a file. Other errors are failures of the scan itself.
//
// Its text is shown to the sender.
type refusal struct{ why string }

func (r refusal) Error() string { return r.why }

func refuseFile(format string, args ...any) error { return refusal{fmt.Sprintf(format, args...)} }

// inspection is the state of scanning one attachment: what was unpacked so far, and what was found.
type inspection struct {
	unpacked, packed int64
	entries          int
	flags            []string
	script           bool // the file is one, or has one in it
}

// File scans a file and returns the verdict with a sentence about it. An error means that there is no
// verdict. declared is the media type that the sender announced.
func File(file io.ReaderAt, size int64, declared string) (status, note string, err error) {
	// One inspection for the whole attachment, so that nested archives share its limits.
	in := &inspection{packed: size}
	err = in.file(io.NewSectionReader(file, 0, size), declared)
	if r, ok := errors.AsType[refusal](err); ok {
		return Rejected, r.why, nil
	}
	if err != nil {
		return "", "", err
	}
	var notes []string
	if in.script {
		notes = append(notes, "The file is a script, or has one in it.")
	}
	if len(in.flags) > 0 {
		notes = append(notes, "The text has marks of prompt injection: "+strings.Join(in.flags, ", ")+".")
	}
	if notes != nil {
		return Suspicious, strings.Join(notes, " "), nil
	}
	return Clean, "", nil
}

// file checks the declared type against the first bytes, and then the content.
func (in *inspection) file(r *io.SectionReader, declared string) error {
	if err := blockedType(declared); err != nil {
		return err
	}
	in.script = isScriptType(declared)
	// As many bytes as http.DetectContentType looks at.
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

// blockedType refuses the types of blockedTypes, without looking at the bytes.
func blockedType(declared string) error {
	kind, _, _ := mime.ParseMediaType(declared)
	if rest, ok := strings.CutPrefix(strings.ToLower(kind), "application/"); ok && slices.Contains(blockedTypes, rest) {
		return refuseFile("Files of the type %.80s are not taken.", kind)
	}
	return nil
}

// isScriptType reports whether a declared type is one of scriptTypes.
func isScriptType(declared string) bool {
	kind, _, _ := mime.ParseMediaType(declared)
	group, rest, _ := strings.Cut(strings.ToLower(kind), "/")
	return (group == "application" || group == "text") && slices.Contains(scriptTypes, rest)
}

// mismatch refuses a file whose first bytes contradict its declared type: images, audio, video and
// fonts must be what they say, and nothing else may be one of them. An empty file, octet-stream, and
// text under any type but those are no contradiction.
func mismatch(head []byte, declared string) error {
	kind, _, _ := mime.ParseMediaType(declared)
	said, _, _ := strings.Cut(strings.ToLower(kind), "/")
	if len(head) == 0 || said == "" || kind == "application/octet-stream" {
		return nil
	}
	found, _, _ := mime.ParseMediaType(http.DetectContentType(head))
	is, _, _ := strings.Cut(found, "/")
	// These have unmistakable first bytes; a text that pretends to be an image is an attack or an error.
	media := []string{"image", "audio", "video", "font"}
	switch {
	// What DetectContentType does not know is octet-stream: most documents and archives.
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

// trimRune removes the bytes of a character that was cut in half at the end.
//
// A text is cut at 512 bytes or at maxText, which may be inside a character.
func trimRune(head []byte) []byte {
	for i := 0; i < utf8.UTFMax && len(head) > 0 && !utf8.Valid(head); i++ {
		head = head[:len(head)-1]
	}
	return head
}

// content scans one file, at a level of nesting, and everything that is packed in it. It goes by the
// bytes: a declared type and the name in an archive prove nothing.
func (in *inspection) content(r io.Reader, level int) error {
	if level > maxLevels {
		return refuseFile("Archives are packed into one another more than %d deep.", maxLevels)
	}
	// The limits of the whole keep this small enough for memory.
	data, err := in.unpack(r, level)
	if err != nil {
		return err
	}
	// Also inside archives, at every level.
	for _, e := range executables {
		if bytes.HasPrefix(data, []byte(e.start)) {
			return refuseFile("The file is %s.", e.what)
		}
	}
	in.script = in.script || bytes.HasPrefix(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), []byte("#!"))
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
			// Source code is full of commands, and data of long runs of base64: neither is a trick.
			if flag != injection.CommandInjection && flag != injection.UnicodeTricks && !slices.Contains(in.flags, flag) {
				in.flags = append(in.flags, flag)
			}
		}
	}
	return nil
}

// unpack reads a file as far as the limits of the whole attachment allow. More is a refusal: it is an
// archive that is made to exhaust whoever opens it.
func (in *inspection) unpack(r io.Reader, level int) ([]byte, error) {
	// The attachment itself, level 0, is bounded by its announced size already.
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

// entry counts a file of an archive, and refuses a name that leads out of the folder it is unpacked to.
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

// zip scans every file of a ZIP archive. An encrypted one cannot be scanned, so it is refused.
func (in *inspection) zip(data []byte, level int) error {
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return refuseFile("The archive is damaged.")
	}
	for _, f := range archive.File {
		if err := in.entry(f.Name); err != nil {
			return err
		}
		// The bit for encryption in the file's header.
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

// gzip scans the one file of a gzip stream, which may be a tar archive.
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

// tar scans every regular file of a tar archive. Links and devices have no content, but their names
// are checked too.
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
		// Nothing is unpacked to disk, so links lead nowhere here.
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := in.content(archive, level+1); err != nil {
			return err
		}
	}
}
