package proof

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/task/amp"
	"signalbox/internal/task/git"
)

// CheckClone checks the commits that a bundle names against a clone of the repository, and says of each what it found.
// The clone is the verifier's own: nobody else's word is taken for what is in it, and nothing of it is run.
func CheckClone(ctx context.Context, parts []Part, path string) error {
	repo, err := git.OpenClone(ctx, path)
	if err != nil {
		return err
	}
	for i := range parts {
		if one := &parts[i]; one.What == "commit" && one.About != "" {
			if one.State, one.Why, err = one.check(ctx, repo); err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks one commit: that it exists, descends from the base and is not the base, is on the branch, and changes
// what its result says. Where git cannot look it is unverified.
func (p *Part) check(ctx context.Context, repo *git.Repository) (state amp.Proof, why string, err error) {
	full, err := repo.Commit(ctx, p.About)
	if err != nil {
		return "", "", err
	}
	shallow, err := repo.Shallow(ctx)
	switch {
	case err != nil:
		return "", "", err
	case full == "" && shallow:
		return amp.Unverified, "the clone is shallow and does not have it", nil
	case full == "":
		return amp.Failed, "there is no such commit in the clone", nil
	case full == p.base:
		return amp.Failed, "it is the commit from which the work began", nil
	}
	var doubts []string
	if full != p.About {
		doubts = append(doubts, "the result names only "+fmt.Sprint(len(p.About))+" digits, which are those of "+full)
	}
	if failed, doubt, err := p.checkPlace(ctx, repo, full, shallow); err != nil || failed != "" {
		return amp.Failed, failed, err
	} else if doubt != "" {
		doubts = append(doubts, doubt)
	}
	if len(doubts) > 0 {
		return amp.Unverified, strings.Join(doubts, "; "), nil
	}
	return amp.Verified, "in the clone it is on the branch " + p.branch + ", descends from " + p.base +
		" and changes what was reported", nil
}

// checkPlace checks where a commit is, and what it changes from the base.
func (p *Part) checkPlace(ctx context.Context, repo *git.Repository, full string, shallow bool) (failed, doubt string, err error) {
	head, err := repo.Branch(ctx, p.branch)
	if err != nil {
		return "", "", err
	}
	on := false
	if head != "" {
		if on, err = repo.Contains(ctx, head, full); err != nil {
			return "", "", err
		}
	}
	base := ""
	if p.base != "" {
		if base, err = repo.Commit(ctx, p.base); err != nil {
			return "", "", err
		}
	}
	switch {
	case shallow:
		return "", "the clone is shallow, so that nothing can be said of what came before it", nil
	case head == "":
		return "", "the clone has no branch " + p.branch, nil
	case !on:
		return "it is not on the branch " + p.branch + " of the clone", "", nil
	case p.base == "":
		return "", "the commit from which the work began was not recorded", nil
	case base == "":
		return "the clone does not have the commit " + p.base + ", from which the work began", "", nil
	}
	if descends, err := repo.Contains(ctx, full, base); err != nil || !descends {
		return "it does not descend from " + p.base + ", from which the work began", "", err
	}
	files, err := repo.Diff(ctx, base, full)
	if err != nil {
		return "", "", err
	}
	var added, removed int64
	for _, c := range files {
		added, removed = added+c.Added, removed+c.Removed
	}
	names, d := slices.Sorted(maps.Keys(files)), p.result.Diff
	if added != int64(d.Added) || removed != int64(d.Removed) || !slices.Equal(names, slices.Sorted(slices.Values(d.Files))) {
		return fmt.Sprintf("it does not change what was reported: %d lines are added and %d removed, in %.200q", added, removed,
			strings.Join(names, ", ")), "", nil
	}
	return "", "", nil
}
