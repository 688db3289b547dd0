package git

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// OpenClone opens a clone that the caller has made, with a working folder or bare, wherever it is. The caller's own may be
// shallow, or borrow objects. Nothing of it is run either.
func OpenClone(ctx context.Context, path string) (*Repository, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(path, ".git")); err == nil {
		r, err := find([]string{path}, path)
		if err == nil {
			r.own = true
		}
		return r, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	r := &Repository{path, true}
	if _, ok, err := r.run(ctx, "", "rev-parse", "--git-dir"); err != nil || !ok {
		return nil, errors.Join(errors.New("there is no git repository at "+path), err)
	}
	return r, nil
}

// Shallow reports whether the repository has only a part of its history.
func (r *Repository) Shallow(ctx context.Context) (bool, error) {
	said, _, err := r.run(ctx, "", "rev-parse", "--is-shallow-repository")
	return strings.TrimSpace(said) == "true", err
}

// Branch is the commit of a branch, of the repository's own or as its origin had it, "" if there is none.
func (r *Repository) Branch(ctx context.Context, name string) (string, error) {
	own, there := "refs/heads/"+name, "refs/remotes/origin/"+name
	found, err := r.Refs(ctx, own, there)
	return cmp.Or(found[own], found[there]), err
}
