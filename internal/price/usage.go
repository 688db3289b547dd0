package price

import "math"

// Usage is what a call to a model took, in tokens. Its kinds are apart: Input and Output have none of the others.
// Whoever reads a provider's reply makes it. Its JSON is stored.
type Usage struct {
	Input        int64 `json:"input_tokens,omitzero"`
	Output       int64 `json:"output_tokens,omitzero"`
	CacheRead    int64 `json:"cache_read_tokens,omitzero"`
	CacheWrite   int64 `json:"cache_write_tokens,omitzero"`    // kept for five minutes, or as long as the provider likes
	CacheWrite1h int64 `json:"cache_write_1h_tokens,omitzero"` // kept for an hour
	AudioInput   int64 `json:"audio_input_tokens,omitzero"`
	AudioOutput  int64 `json:"audio_output_tokens,omitzero"`
	ImageInput   int64 `json:"image_input_tokens,omitzero"`
	ImageOutput  int64 `json:"image_output_tokens,omitzero"`
	// Tier is the tier of service that was billed, if it changes the price: TierBatch and so on.
	Tier string `json:"service_tier,omitzero"`
	// Estimated says that the provider reported nothing, and the tokens were worked out from the bytes.
	Estimated bool `json:"estimated,omitzero"`
}

// The tiers of service that have a price of their own. Others cost what the dearest does.
const (
	TierBatch    = "batch"
	TierFlex     = "flex"
	TierPriority = "priority"
)

// kinds are the counts, for what is done with each of them.
func (u *Usage) kinds() [9]*int64 {
	return [9]*int64{
		&u.Input, &u.Output, &u.CacheRead, &u.CacheWrite, &u.CacheWrite1h, &u.AudioInput, &u.AudioOutput, &u.ImageInput,
		&u.ImageOutput,
	}
}

// InputTokens are all tokens that were sent to the model, from a cache or not.
func (u Usage) InputTokens() int64 {
	return sum(u.Input, u.CacheRead, u.CacheWrite, u.CacheWrite1h, u.AudioInput, u.ImageInput)
}

// OutputTokens are all tokens that the model made.
func (u Usage) OutputTokens() int64 { return sum(u.Output, u.AudioOutput, u.ImageOutput) }

// Tokens are all tokens.
func (u Usage) Tokens() int64 { return sum(u.InputTokens(), u.OutputTokens()) }

// Add adds the tokens of another call. The tier stays, and a sum of which a part is estimated is estimated.
func (u *Usage) Add(other Usage) {
	from := other.kinds()
	for i, n := range u.kinds() {
		*n = sum(*n, *from[i])
	}
	u.Estimated = u.Estimated || other.Estimated
}

// Bounded is the usage with each count from 0 to 10^12, which is far above what a call can take: providers and agents
// may report anything.
func (u Usage) Bounded() Usage {
	for _, n := range u.kinds() {
		*n = min(max(*n, 0), 1e12)
	}
	return u
}

// bytesPerToken is how many bytes of text make a token, at the least: estimates are rather too high than too low.
const bytesPerToken = 3

// Estimate is the usage of a call whose provider reported none, from the bytes that were sent and received.
func Estimate(sent, received int64) Usage {
	tokens := func(bytes int64) int64 { return (max(bytes, 0) + bytesPerToken - 1) / bytesPerToken }
	return Usage{Input: tokens(sent), Output: tokens(received), Estimated: true}
}

// sum adds numbers that are not negative, and stops at the largest one.
func sum(all ...int64) (total int64) {
	for _, n := range all {
		if total > math.MaxInt64-n {
			return math.MaxInt64
		}
		total += n
	}
	return total
}
