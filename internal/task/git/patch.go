package git

import (
	"context"
	"errors"
)

// Patch is the difference between two commits as text. It shows what Diff counts: renames as a deletion and an
// addition, and nothing that a program of the repository made of the files. One that is larger than what is read of
// git is an error.
func (r *Repository) Patch(ctx context.Context, from, to string) (string, error) {
	out, ok, err := r.run(ctx, "", "diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color",
		"--ignore-submodules=all", from, to, "--")
	if err == nil && !ok {
		err = errors.New("git cannot compare the commits")
	}
	return out, err
}
