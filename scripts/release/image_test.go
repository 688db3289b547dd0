package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json" // the format is OCI's, and this program stands on nothing of ours
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// sample is an image of two small programs.
func sample(t *testing.T) *image {
	t.Helper()
	trusted, err := authorities()
	if err != nil {
		t.Fatal(err)
	}
	return &image{
		version: "1.2.3", commit: "abc", made: time.Unix(1_700_000_000, 0).UTC(), authorities: trusted,
		programs:  map[target][]byte{{"linux", "amd64"}: []byte("for amd64"), {"linux", "arm64"}: []byte("for arm64")},
		documents: map[string][]byte{"LICENSE": []byte("ours"), licenceFile: []byte("theirs")},
	}
}

// entries are the files of an archive, with their headers.
func entries(t *testing.T, text []byte) (files map[string][]byte, heads []*tar.Header) {
	t.Helper()
	files = map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(text)); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, heads
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[head.Name], heads = content, append(heads, head)
	}
}

// blob is what a descriptor points to. Its digest and its size have to be right.
func blob(t *testing.T, files map[string][]byte, d descriptor, media string) []byte {
	t.Helper()
	text, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if !ok || d.MediaType != media || d.Size != len(text) || d.Digest != "sha256:"+digest(text) {
		t.Fatalf("%+v points to %d bytes of %s; want %s", d, len(text), digest(text), media)
	}
	return text
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// TestAnImageIsWhatTheFormatDescribes: from the index to the last file of the layers, everything is there, is named by
// its digest, and nothing stands in the archive that nothing points to.
func TestAnImageIsWhatTheFormatDescribes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	i := sample(t)
	if err := i.write(&out); err != nil {
		t.Fatal(err)
	}
	files, heads := entries(t, out.Bytes())
	if string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", files["oci-layout"])
	}
	var top, index manifest
	decode(t, files["index.json"], &top)
	if len(top.Manifests) != 1 || top.SchemaVersion != 2 || top.MediaType != mediaIndex ||
		top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("index.json: %+v", top)
	}
	decode(t, blob(t, files, top.Manifests[0], mediaIndex), &index)
	if len(index.Manifests) != 2 {
		t.Fatalf("the index: %+v", index)
	}
	reached := map[string]bool{top.Manifests[0].Digest: true}
	for _, d := range index.Manifests {
		var m manifest
		decode(t, blob(t, files, d, mediaManifest), &m)
		if len(m.Layers) != 1 || m.Config == nil {
			t.Fatalf("a manifest: %+v", m)
		}
		var c imageConfig
		decode(t, blob(t, files, *m.Config, mediaConfig), &c)
		packed := blob(t, files, m.Layers[0], mediaLayer)
		plain, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(plain)
		if err != nil {
			t.Fatal(err)
		}
		if c.Architecture != d.Platform.Architecture || c.OS != d.Platform.OS || len(c.RootFS.DiffIDs) != 1 ||
			c.RootFS.DiffIDs[0] != "sha256:"+digest(layer) || len(c.History) != 1 {
			t.Errorf("the configuration of %+v: %+v", d.Platform, c)
		}
		wantRunnable(t, c)
		wantLayer(t, i, target{c.OS, c.Architecture}, layer)
		reached[d.Digest], reached[m.Config.Digest], reached[m.Layers[0].Digest] = true, true, true
	}
	for _, h := range heads {
		name, isBlob := strings.CutPrefix(h.Name, "blobs/sha256/")
		if isBlob && name != "" && !reached["sha256:"+name] {
			t.Errorf("nothing points to %s", h.Name)
		}
	}
}

// wantRunnable checks how a container of the image is run: not as root, and without a shell.
func wantRunnable(t *testing.T, c imageConfig) {
	t.Helper()
	_, port := c.Config.ExposedPorts["7446/tcp"]
	_, volume := c.Config.Volumes["/data"]
	if c.Config.User != "65532:65532" || !port || !volume || c.Config.StopSignal != "SIGTERM" ||
		strings.Join(c.Config.Entrypoint, " ") != "/usr/local/bin/signalbox" || strings.Join(c.Config.Cmd, " ") != "up" ||
		c.Config.WorkingDir != "/data" || c.Config.Labels["org.opencontainers.image.revision"] != "abc" {
		t.Errorf("%+v", c.Config)
	}
}

// wantLayer checks the files of an image: the parents come before what is in them, only the data folder belongs to the
// image's user, and nobody but root may write anything else.
func wantLayer(t *testing.T, i *image, which target, layer []byte) {
	t.Helper()
	files, heads := entries(t, layer)
	if !bytes.Equal(files[imageProgram], i.programs[which]) || !bytes.Equal(files[imageAuthorities], i.authorities) ||
		string(files["usr/share/doc/signalbox/LICENSE"]) != "ours" {
		t.Errorf("the files of %v: %v", which, len(files))
	}
	seen := map[string]bool{"": true}
	for _, h := range heads {
		folder, _, _ := cutLast(strings.TrimSuffix(h.Name, "/"))
		if !seen[folder] || seen[h.Name] {
			t.Errorf("%s stands before its folder, or twice", h.Name)
		}
		seen[h.Name] = true
		owner, data := 0, h.Name == "data/"
		if data {
			owner = imageUser
		}
		open := h.Mode&0o022 != 0 && h.Name != "tmp/"
		if h.Uid != owner || h.Gid != owner || open || h.Mode&0o6000 != 0 || !h.ModTime.Equal(i.made) || h.Uname != "" ||
			data && h.Mode != 0o700 {
			t.Errorf("%+v", h)
		}
	}
}

// cutLast cuts a path after its last slash.
func cutLast(name string) (folder, file string, ok bool) {
	at := strings.LastIndexByte(name, '/')
	if at < 0 {
		return "", name, false
	}
	return name[:at+1], name[at+1:], true
}

// TestTheSameProgramsMakeTheSameImage byte for byte, and another time another one.
func TestTheSameProgramsMakeTheSameImage(t *testing.T) {
	t.Parallel()
	write := func(i *image) string {
		var out bytes.Buffer
		if err := i.write(&out); err != nil {
			t.Fatal(err)
		}
		return digest(out.Bytes())
	}
	first, later := sample(t), sample(t)
	later.made = later.made.Add(time.Second)
	if write(first) != write(sample(t)) {
		t.Error("the same image has other bytes")
	}
	if write(first) == write(later) {
		t.Error("the time is not in the image, so this test shows nothing")
	}
	if err := (&image{}).write(io.Discard); err == nil {
		t.Error("an image without a program is written")
	}
}
