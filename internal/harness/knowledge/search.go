package knowledge

import (
	"cmp"
	"context"
	"math"
	"slices"

	"signalbox/internal/store"
)

// Search finds the pieces of a workspace that answer a question best, at most limit and
// MaxFound of them. The caller has checked that the workspace may be seen.
func (b *Base) Search(ctx context.Context, workspace, question string, limit int) ([]Knowledge, error) {
	words := Keywords(question)
	if len(words) == 0 || limit <= 0 {
		return []Knowledge{}, nil
	}
	scores, err := b.score(ctx, workspace, words)
	if err != nil {
		return nil, err
	}
	best := make([]string, 0, len(scores))
	for name := range scores {
		best = append(best, name)
	}
	slices.SortFunc(best, func(a, b string) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(a, b)) })
	best = best[:min(len(best), limit, MaxFound)]
	if len(best) == 0 {
		return []Knowledge{}, nil
	}
	var where store.Where
	where.In("k.id", best)
	found, _, err := b.read(ctx, "WHERE "+where.String(), where.Args()...)
	for i := range found {
		found[i].Score = scores[found[i].ID]
	}
	// The database returns them in any order.
	slices.SortFunc(found, func(a, b Knowledge) int { return slices.Index(best, a.ID) - slices.Index(best, b.ID) })
	return found, err
}

// MaxFound is the most pieces that a search finds.
const MaxFound = 100

// score is, for each piece with any of the words, the sum of what each word adds to its
// BM25 score.
func (b *Base) score(ctx context.Context, workspace string, words []string) (map[string]float64, error) {
	var texts, total int64
	err := b.db.QueryRow(ctx, "SELECT count(*), COALESCE(sum(words), 0) FROM knowledge WHERE workspace = $1",
		[]any{workspace}, &texts, &total)
	if err != nil || texts == 0 {
		return nil, err
	}
	var where store.Where
	where.And("w.workspace = %s", workspace)
	where.In("w.word", words)
	type hit struct {
		word, id      string
		times, length int64
	}
	having := map[string]int64{}
	hits, err := store.All(b.db.Reading(ctx), func(scan store.Scan) (one hit, err error) {
		err = scan(&one.word, &one.id, &one.times, &one.length)
		// having counts the pieces that have the word, for its rarity. There is one row for
		// each word and piece.
		having[one.word]++
		return one, err
	}, "SELECT w.word, w.id, w.times, k.words FROM knowledge_word w JOIN knowledge k ON k.id = w.id WHERE "+where.String()+
		" ORDER BY w.word, w.id", where.Args()...)
	if err != nil {
		return nil, err
	}
	scores := map[string]float64{}
	for _, one := range hits {
		scores[one.id] += relevance(one.times, one.length, float64(total)/float64(texts), texts, having[one.word])
	}
	return scores, nil
}

// The constants of BM25, with the values that most implementations use.
const (
	saturation = 1.2
	byLength   = 0.75
)

// relevance is what one word adds to the score of a piece: more, the rarer the word is
// among the pieces of the workspace, the more often it occurs in this one, and the
// shorter this one is.
func relevance(times, length int64, average float64, texts, having int64) float64 {
	rarity := math.Log(1 + (float64(texts)-float64(having)+0.5)/(float64(having)+0.5))
	often := float64(times)
	return rarity * often * (saturation + 1) / (often + saturation*(1-byLength+byLength*float64(length)/max(average, 1)))
}
