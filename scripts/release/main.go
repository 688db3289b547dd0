// Command release makes what is given to others: the program for each system, an OCI image, the list of what is in
// each program, the licences of all of it, and checksums. It owns no step of the program itself and imports nothing of
// ours; it calls the go command and reads the module cache.
//
//	go run ./scripts/release all dist          everything
//	go run ./scripts/release image dist        the image alone
//	go run ./scripts/release licences          lists the licences; fails on one that is not allowed
//
// What always holds: the same commit, built with the same Go, gives the same bytes, wherever and whenever it is built.
// Times come from the commit (SOURCE_DATE_EPOCH), paths are trimmed, and nothing is taken from the machine: no
// certificates, no users, no clock.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// programs is the flag -program, which may be given several times: SYSTEM/ARCHITECTURE=FILE.
type programs map[target]string

// String is what the flag package asks for.
func (p programs) String() string { return "" }

// Set takes one value of the flag.
func (p programs) Set(value string) error {
	name, file, ok := strings.Cut(value, "=")
	system, arch, both := strings.Cut(name, "/")
	if !ok || !both {
		return fmt.Errorf("should be SYSTEM/ARCHITECTURE=FILE, such as linux/amd64=bin/signalbox")
	}
	p[target{system, arch}] = file
	return nil
}

// run is one command line.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("say what to make: all, image or licences")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	built := programs{}
	flags.Var(built, "program", "a program that was built already, SYSTEM/ARCHITECTURE=`FILE`; may be given several times")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	p, err := openProject(ctx)
	if err != nil {
		return err
	}
	if args[0] == "licences" {
		return p.listLicences(ctx, out)
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("say into which folder, such as dist")
	}
	folder := flags.Arg(0)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	switch args[0] {
	case "all":
		return p.all(ctx, folder, out)
	case "image":
		if len(built) == 0 {
			if err := p.build(ctx, folder, imageTargets, built, out); err != nil {
				return err
			}
		}
		return p.image(ctx, folder, built, out)
	}
	return fmt.Errorf("unknown: %s. Say all, image or licences", args[0])
}

// all makes a whole release.
func (p *project) all(ctx context.Context, folder string, out io.Writer) error {
	built := programs{}
	if err := p.build(ctx, folder, targets, built, out); err != nil {
		return err
	}
	for t, file := range built {
		if err := p.writeParts(ctx, file, t); err != nil {
			return err
		}
	}
	for t := range built {
		if !slices.Contains(imageTargets, t) {
			delete(built, t)
		}
	}
	if err := p.image(ctx, folder, built, out); err != nil {
		return err
	}
	text, err := p.licenceTexts(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, licenceFile), text, 0o644); err != nil {
		return err
	}
	return writeSums(folder, out)
}

// image writes the OCI image with these programs.
func (p *project) image(ctx context.Context, folder string, built programs, out io.Writer) error {
	licences, err := p.licenceTexts(ctx)
	if err != nil {
		return err
	}
	own, err := os.ReadFile(filepath.Join(p.root, "LICENSE"))
	if err != nil {
		return err
	}
	trusted, err := authorities()
	if err != nil {
		return err
	}
	i := image{
		version: p.version, commit: p.commit, made: p.made, programs: map[target][]byte{}, authorities: trusted,
		documents: map[string][]byte{"LICENSE": own, licenceFile: licences},
	}
	for t, file := range built {
		if i.programs[t], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	path := filepath.Join(folder, "signalbox_"+p.version+"_oci.tar")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = i.write(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		_, err = fmt.Fprintln(out, path)
	}
	return err
}
