package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// target is a system and an architecture, as the go command names them.
type target struct{ system, arch string }

// targets are what the program is built for. The server locks its data folder, asks for room on its disk and looks at
// the processes that call it in ways that Windows does not have, so it does not compile there.
var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}}

// imageTargets are those that are in the image.
var imageTargets = []target{{"linux", "amd64"}, {"linux", "arm64"}}

// mainPackage is what is built.
const mainPackage = "./cmd/signalbox"

// project is what is released. made is the time that stands in all that is written.
type project struct {
	root, version, commit string
	made                  time.Time
}

// versionLine is where the version stands in the source.
var versionLine = regexp.MustCompile(`(?m)^const Version = "([^"]+)"$`)

// openProject reads the version, the commit and its time, from the folder of the module that this is run in.
func openProject(ctx context.Context) (*project, error) {
	file, err := command(ctx, ".", nil, "go", "env", "GOMOD")
	if err != nil {
		return nil, err
	}
	p := &project{root: filepath.Dir(strings.TrimSpace(string(file)))}
	source, err := os.ReadFile(filepath.Join(p.root, "internal", "server", "health.go"))
	if err != nil {
		return nil, err
	}
	found := versionLine.FindSubmatch(source)
	if found == nil {
		return nil, fmt.Errorf("internal/server/health.go has no line const Version = \"…\"")
	}
	p.version = string(found[1])
	// Outside of a repository, as in a source archive, there is no commit, and SOURCE_DATE_EPOCH says the time.
	if text, err := command(ctx, p.root, nil, "git", "log", "-1", "--format=%H %ct"); err == nil {
		var seconds int64
		if _, err := fmt.Sscanf(string(text), "%s %d", &p.commit, &seconds); err != nil {
			return nil, fmt.Errorf("git log answered %q", text)
		}
		p.made = time.Unix(seconds, 0).UTC()
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return nil, fmt.Errorf("SOURCE_DATE_EPOCH should be seconds since 1970, and is %q", epoch)
		}
		p.made = time.Unix(seconds, 0).UTC()
	}
	if p.made.IsZero() {
		return nil, fmt.Errorf("this is no git repository; say the time of the source in SOURCE_DATE_EPOCH, in seconds " +
			"since 1970")
	}
	return p, nil
}

// build builds the program for each of the systems, into files whose names say which.
func (p *project) build(ctx context.Context, folder string, list []target, built programs, out io.Writer) error {
	for _, t := range list {
		file, err := filepath.Abs(filepath.Join(folder, fmt.Sprintf("signalbox_%s_%s_%s", p.version, t.system, t.arch)))
		if err != nil {
			return err
		}
		// The same flags as in the Makefile. -trimpath keeps the folder of the source out of the program; without cgo
		// nothing of this machine's C library gets in.
		environment := []string{
			"CGO_ENABLED=0", "GOOS=" + t.system, "GOARCH=" + t.arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0",
		}
		_, err = command(ctx, p.root, environment, "go", "build", "-trimpath", "-ldflags=-s", "-o", file, mainPackage)
		if err != nil {
			return err
		}
		built[t] = file
		if _, err := fmt.Fprintln(out, file); err != nil {
			return err
		}
	}
	return nil
}

// writeSums writes the SHA-256 of every file of the folder, in the form that `sha256sum --check` reads.
func writeSums(folder string, out io.Writer) error {
	const name = "SHA256SUMS"
	all, err := os.ReadDir(folder) // sorted by name
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, entry := range all {
		if entry.IsDir() || entry.Name() == name {
			continue
		}
		f, err := os.Open(filepath.Join(folder, entry.Name()))
		if err != nil {
			return err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, f)
		_ = f.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", hex.EncodeToString(hash.Sum(nil)), entry.Name())
	}
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, path)
	return err
}

// command runs a program and returns what it prints. What it says about an error is part of the error.
func command(ctx context.Context, dir string, environment []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said.Bytes())
	}
	return out, nil
}
