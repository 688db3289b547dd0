package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json" // the format is OCI's, and this program stands on nothing of ours
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// The image is written without a daemon, as the OCI image format 1.1 describes it: a layout with an index, for each
// architecture a manifest, a configuration and one layer. It is made from nothing: there is no shell in it to run and
// no package to update.
//
// The time zones are in the program itself, the certificates of authorities in a file of the image (authorities.go).

// The image's user. It has no name on any machine, so that a file of the data folder belongs to nobody else.
const imageUser = 65532

// The paths in the image.
const (
	imageProgram     = "usr/local/bin/signalbox"
	imageData        = "data"
	imageAuthorities = "etc/ssl/certs/ca-certificates.crt"
)

// The media types of the format.
const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// image is what goes into an image. authorities are certificates; documents are put beside the program, by name.
type image struct {
	version, commit string
	made            time.Time
	programs        map[target][]byte
	authorities     []byte
	documents       map[string][]byte
}

// descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// manifest is one of an image, or with Manifests an index.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        *descriptor       `json:"config,omitempty"`
	Layers        []descriptor      `json:"layers,omitempty"`
	Manifests     []descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// imageConfig is the configuration of an image.
type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		User         string              `json:"User"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Env          []string            `json:"Env"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		Volumes      map[string]struct{} `json:"Volumes"`
		WorkingDir   string              `json:"WorkingDir"`
		Labels       map[string]string   `json:"Labels"`
		StopSignal   string              `json:"StopSignal"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// write writes the image as a tar archive of its layout, which podman, skopeo, containerd and Docker load.
func (i *image) write(w io.Writer) error {
	if len(i.programs) == 0 {
		return fmt.Errorf("an image needs a program")
	}
	blobs := map[string][]byte{}
	var all []descriptor
	ordered := slices.SortedFunc(maps.Keys(i.programs), func(a, b target) int {
		return strings.Compare(a.system+"/"+a.arch, b.system+"/"+b.arch)
	})
	for _, t := range ordered {
		one, err := i.add(blobs, t)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	index, err := keepJSON(blobs, mediaIndex, manifest{
		SchemaVersion: 2, MediaType: mediaIndex, Manifests: all, Annotations: i.labels(),
	})
	if err != nil {
		return err
	}
	index.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": i.version, "io.containerd.image.name": "localhost/signalbox:" + i.version,
	}
	top, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{index}})
	if err != nil {
		return err
	}
	files := map[string][]byte{"index.json": top, "oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	for name, blob := range blobs {
		files["blobs/sha256/"+name] = blob
	}
	out := archive{tar.NewWriter(w), i.made}
	for _, folder := range []string{"blobs", "blobs/sha256"} {
		if err := out.folder(folder, 0o755, 0); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := out.file(name, 0o644, files[name]); err != nil {
			return err
		}
	}
	return out.Close()
}

// labels say what the image is.
func (i *image) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "signalbox",
		"org.opencontainers.image.description": "One place that sees your AI agents, stops them, and proves what they did",
		"org.opencontainers.image.version":     i.version,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.created":     i.made.Format(time.RFC3339),
	}
	if i.commit != "" {
		labels["org.opencontainers.image.revision"] = i.commit
	}
	return labels
}

// add puts the image of one architecture among the blobs.
func (i *image) add(blobs map[string][]byte, t target) (descriptor, error) {
	layer, err := i.layer(t)
	if err != nil {
		return descriptor{}, err
	}
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression) // no name and no time in its header
	if err != nil {
		return descriptor{}, err
	}
	if _, err = zip.Write(layer); err == nil {
		err = zip.Close()
	}
	if err != nil {
		return descriptor{}, err
	}
	c := imageConfig{Created: i.made, Architecture: t.arch, OS: t.system}
	c.Config.User = fmt.Sprintf("%d:%d", imageUser, imageUser)
	c.Config.ExposedPorts = map[string]struct{}{"7446/tcp": {}}
	// A container is reached through its own address, so it listens on all of them. Whatever needs room for a moment
	// takes it in the data folder: the rest of the image can be read-only.
	c.Config.Env = []string{
		"PATH=/usr/local/bin", "SIGNALBOX_DATA=/" + imageData, "SIGNALBOX_LISTEN=:7446", "TMPDIR=/" + imageData,
		"SQLITE_TMPDIR=/" + imageData, "HOME=/" + imageData,
	}
	c.Config.Entrypoint, c.Config.Cmd = []string{"/" + imageProgram}, []string{"up"}
	c.Config.Volumes, c.Config.WorkingDir = map[string]struct{}{"/" + imageData: {}}, "/"+imageData
	c.Config.Labels, c.Config.StopSignal = i.labels(), "SIGTERM"
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{"sha256:" + digest(layer)}
	c.History = []history{{i.made, "scripts/release image"}}
	config, err := keepJSON(blobs, mediaConfig, c)
	if err != nil {
		return descriptor{}, err
	}
	packedLayer := keep(blobs, mediaLayer, packed.Bytes())
	one, err := keepJSON(blobs, mediaManifest, manifest{
		SchemaVersion: 2, MediaType: mediaManifest, Config: &config, Layers: []descriptor{packedLayer},
		Annotations: i.labels(),
	})
	one.Platform = &platform{t.arch, t.system}
	return one, err
}

// layer is the files of the image, in the order of their names. Only the data folder belongs to the image's user.
func (i *image) layer(t target) ([]byte, error) {
	var out bytes.Buffer
	a := archive{tar.NewWriter(&out), i.made}
	user := fmt.Sprintf("signalbox:x:%d:%d:Signalbox:/%s:/nowhere\n", imageUser, imageUser, imageData)
	steps := []func() error{
		func() error { return a.folder(imageData, 0o700, imageUser) },
		func() error { return a.folder("etc", 0o755, 0) },
		func() error { return a.file("etc/group", 0o644, fmt.Appendf(nil, "signalbox:x:%d:\n", imageUser)) },
		func() error { return a.file("etc/passwd", 0o644, []byte(user)) },
		func() error { return a.folder("etc/ssl", 0o755, 0) },
		func() error { return a.folder("etc/ssl/certs", 0o755, 0) },
		func() error { return a.file(imageAuthorities, 0o644, i.authorities) },
		func() error { return a.folder("tmp", 0o1777, 0) },
	}
	for _, folder := range []string{"usr", "usr/local", "usr/local/bin"} {
		steps = append(steps, func() error { return a.folder(folder, 0o755, 0) })
	}
	steps = append(steps, func() error { return a.file(imageProgram, 0o755, i.programs[t]) })
	const documents = "usr/share/doc/signalbox"
	for _, folder := range []string{"usr/share", "usr/share/doc", documents} {
		steps = append(steps, func() error { return a.folder(folder, 0o755, 0) })
	}
	for _, name := range slices.Sorted(maps.Keys(i.documents)) {
		file := path.Join(documents, name)
		steps = append(steps, func() error { return a.file(file, 0o644, i.documents[name]) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := a.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// archive writes tar archives in which nothing is of this machine.
type archive struct {
	*tar.Writer
	at time.Time
}

func (a archive) folder(name string, mode int64, owner int) error {
	return a.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner, ModTime: a.at, Format: tar.FormatUSTAR,
	})
}

func (a archive) file(name string, mode int64, content []byte) error {
	err := a.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: a.at, Format: tar.FormatUSTAR,
	})
	if err == nil {
		_, err = a.Write(content)
	}
	return err
}

// keep puts a blob among the others and returns what points to it.
func keep(blobs map[string][]byte, media string, blob []byte) descriptor {
	name := digest(blob)
	blobs[name] = blob
	return descriptor{MediaType: media, Digest: "sha256:" + name, Size: len(blob)}
}

// keepJSON is keep for a value. Keys of maps are sorted, so the same value has the same bytes.
func keepJSON(blobs map[string][]byte, media string, value any) (descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return keep(blobs, media, text), nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
