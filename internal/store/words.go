package store

import "strings"

// Full-text search uses a table that a migration makes with {full-text TABLE}: FTS5 on
// SQLite, a tsvector on PostgreSQL. It holds words and not the texts. Case is ignored, and
// no language is assumed, so there is no stemming.

// PutWords indexes a text under a number that has no words yet. NUL and invalid UTF-8, which
// PostgreSQL refuses, become spaces.
func (db *DB) PutWords(tx *Tx, table string, number int64, text string) {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", " "), " ")
	if db.Name() == "sqlite" {
		tx.Exec("INSERT INTO "+table+" (rowid, words) VALUES ($1, $2)", number, text)
		return
	}
	tx.Exec("INSERT INTO "+table+" (number, words) VALUES ($1, to_tsvector('simple', $2::text))", number, text)
}

// DropWords removes the words of the numbers from one to another, both included.
func (db *DB) DropWords(tx *Tx, table string, from, to int64) {
	key := "number"
	if db.Name() == "sqlite" {
		key = "rowid"
	}
	tx.Exec("DELETE FROM "+table+" WHERE "+key+" BETWEEN $1 AND $2", from, to)
}

// Matching is the SQL condition that the text under number, the name of a column, has all
// the words of the parameter mark, such as $3. Make its value with Words.
func (db *DB) Matching(number, table, mark string) string { return db.matching(number, table, mark) }

// Words makes the value of the parameter of Matching from what a person typed.
func (db *DB) Words(text string) string {
	text = strings.ReplaceAll(text, "\x00", " ")
	if db.Name() != "sqlite" {
		return text
	}
	// In quotes a word is a word, whatever it is to FTS5's language.
	var words []string
	for word := range strings.FieldsSeq(text) {
		words = append(words, `"`+strings.ReplaceAll(word, `"`, `""`)+`"`)
	}
	return strings.Join(words, " ")
}
