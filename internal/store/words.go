package store

import "strings"

// Words of texts are found by a table that a migration makes with {full-text TABLE}: FTS5
// on SQLite, a tsvector on PostgreSQL. It holds words and not the texts. Words are told
// apart without regard to case, in every language alike.

// PutWords lets a text be found under a number, under which nothing is found yet.
func (db *DB) PutWords(tx *Tx, table string, number int64, text string) {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", " "), " ")
	if db.Name() == "sqlite" {
		tx.Exec("INSERT INTO "+table+" (rowid, words) VALUES ($1, $2)", number, text)
		return
	}
	tx.Exec("INSERT INTO "+table+" (number, words) VALUES ($1, to_tsvector('simple', $2::text))", number, text)
}

// DropWords makes sure that nothing is found under the numbers from one to another.
func (db *DB) DropWords(tx *Tx, table string, from, to int64) {
	key := "number"
	if db.Name() == "sqlite" {
		key = "rowid"
	}
	tx.Exec("DELETE FROM "+table+" WHERE "+key+" BETWEEN $1 AND $2", from, to)
}

// Matching is the condition that the text under the number, a column, has all words of
// the parameter mark, such as $3, whose value is made with Words.
func (db *DB) Matching(number, table, mark string) string { return db.matching(number, table, mark) }

// Words is a text to look for, as Matching takes it.
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
