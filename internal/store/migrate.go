package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"signalbox/internal/fault"
)

// Migrations are the steps that make one package's tables. Steps are only ever
// added at the end: a step that has been released is never changed, since databases remember
// the digest of each step that they have.
//
// A step is SQL with tokens: {bigint}, {blob}, {bool}, {text} are types, {strict}
// follows a table, or {keyed}, which has SQLite keep the rows in the key's own tree (for
// small rows whose key is not one number; PostgreSQL has no such thing). A line
// "{append-only TABLE KEPT… / ERASED…}" forbids every change of a table but one that keeps
// the columns before the slash and sets those behind it to null; without a slash, every
// change. A line "{full-text TABLE}" makes a table for finding words; see words.go.
type Migrations struct {
	Package string
	Steps   []string
}

// migrationTable has a row for each step that the database has.
const migrationTable = `CREATE TABLE IF NOT EXISTS schema_step (
  package {text} NOT NULL,
  step {bigint} NOT NULL,
  sum {text} NOT NULL,
  PRIMARY KEY (package, step)
) {strict}`

// Migrate brings the database to the schema of this program. Processes that start
// together wait for one another. A database with steps that this program does not
// know is refused.
func (db *DB) Migrate(ctx context.Context, sets ...Migrations) error {
	err := db.migrating(ctx, func(q Querier, run func(string) error) error {
		if err := run(db.expand(migrationTable)); err != nil {
			return err
		}
		done, err := appliedSteps(ctx, q)
		if err != nil {
			return err
		}
		for _, set := range sets {
			have := done[set.Package]
			delete(done, set.Package)
			if err := db.migrateSet(set, have, run); err != nil {
				return err
			}
		}
		for name := range done {
			return newer(name)
		}
		return nil
	})
	return Explain(err)
}

// migrateSet runs the steps of one package that the database does not have. have are the
// digests of those it has, in order; one that differs belongs to another program.
func (db *DB) migrateSet(set Migrations, have []string, run func(string) error) error {
	if len(have) > len(set.Steps) {
		return newer(set.Package)
	}
	for i, step := range set.Steps {
		sum := sha256.Sum256([]byte(step))
		hexSum := hex.EncodeToString(sum[:8])
		if i < len(have) {
			if have[i] != hexSum {
				return fault.New(fault.SchemaNewer,
					"Step %d of %s in this database is not the one this program has. The database belongs "+
						"to another build of Signalbox; run that one.", i+1, set.Package)
			}
			continue
		}
		if err := run(db.expand(step)); err != nil {
			return fmt.Errorf("migrate %s to step %d: %w", set.Package, i+1, err)
		}
		if err := run(fmt.Sprintf("INSERT INTO schema_step (package, step, sum) VALUES ('%s', %d, '%s')", set.Package, i+1,
			hexSum)); err != nil {
			return err
		}
	}
	return nil
}

func newer(name string) error {
	return fault.New(fault.SchemaNewer,
		"This database was made by a newer Signalbox (its %s tables are ahead of this program). Run that version, or "+
			"restore a backup made before the upgrade. Nothing was changed.", name)
}

// appliedSteps reads the digests of the steps that the database has, by package.
func appliedSteps(ctx context.Context, q Querier) (map[string][]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT package, sum FROM schema_step ORDER BY package, step")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	done := map[string][]string{}
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			return nil, err
		}
		done[name] = append(done[name], sum)
	}
	return done, rows.Err()
}

// expand replaces the tokens of a step by what this database calls them.
func (db *DB) expand(step string) string {
	var out strings.Builder
	for line := range strings.Lines(step) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "{append-only "); ok {
			table, columns, _ := strings.Cut(strings.TrimSuffix(rest, "}"), " ")
			out.WriteString(db.appendOnly(table, erasing(columns)))
			continue
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "{full-text "); ok {
			out.WriteString(db.fullText(strings.TrimSuffix(rest, "}")))
			continue
		}
		out.WriteString(line)
	}
	return db.tokens().Replace(out.String())
}

// CheckSchema reports whether the database has exactly the schema of this program,
// and changes nothing.
func (db *DB) CheckSchema(ctx context.Context, sets ...Migrations) error {
	done, err := appliedSteps(ctx, db.Read)
	if err != nil {
		return fault.Wrap(Explain(err), fault.NotFound,
			"There is no Signalbox in this database yet. Start one with `signalbox up`.")
	}
	for _, set := range sets {
		switch have := len(done[set.Package]); {
		case have > len(set.Steps):
			return newer(set.Package)
		case have < len(set.Steps):
			return fault.New(fault.Conflict,
				"This database was made by an older Signalbox. Start this version once with "+
					"`signalbox up`, which brings it up to date.")
		}
	}
	return nil
}

// erasing is the condition under which a row of an append-only table may change:
// the columns before the slash stay, those behind it become null.
func erasing(columns string) string {
	kept, erased, ok := strings.Cut(columns, "/")
	if !ok {
		return "1 = 0"
	}
	var all []string
	for c := range strings.FieldsSeq(kept) {
		all = append(all, "old."+c+" = new."+c)
	}
	for c := range strings.FieldsSeq(erased) {
		all = append(all, "new."+c+" IS NULL")
	}
	return strings.Join(all, " AND ")
}
