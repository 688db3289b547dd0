package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// learnSchema finds out what the schema should be: that of a database that this program has just made. PostgreSQL
// describes its tables in words of its own, so that one is made there, once.
func (r *round) learnSchema(ctx context.Context, b *built) error {
	a := r.a
	a.mu.Lock()
	known := a.should != ""
	a.mu.Unlock()
	if known {
		return nil
	}
	db := b.db
	if a.DB.Name() != db.Name() {
		other, drop, err := a.DB.Beside(ctx, a.Sets...)
		if err != nil {
			return fmt.Errorf("make an empty database to compare the schema with: %w", err)
		}
		defer drop()
		db = other
	}
	text, err := db.Schema(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.should = text
	a.mu.Unlock()
	return nil
}

// schema compares the tables, indexes and triggers that there are with those that there should be.
func (r *round) schema(ctx context.Context) error {
	a := r.a
	a.mu.Lock()
	should := a.should
	a.mu.Unlock()
	if should == "" {
		return nil // the whole round finds out
	}
	is, err := a.DB.Schema(ctx)
	if err != nil || is == should {
		return err
	}
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	have, want := lines(is), lines(should)
	for _, line := range want {
		if !slices.Contains(have, line) {
			r.report(ctx, Schema, "", "This is missing or was changed: %.200s", line)
		}
	}
	for _, line := range have {
		if !slices.Contains(want, line) {
			r.report(ctx, Schema, "", "This was added by hand: %.200s", line)
		}
	}
	return nil
}
