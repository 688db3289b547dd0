package form

import (
	"cmp"

	"signalbox/internal/wire"
)

// BatchLine reads one line of the results of a batch, of Anthropic or OpenAI. ok is false if it is none; billed says
// that the provider has made a reply, whose facts these are.
func BatchLine(line []byte) (about Facts, billed, ok bool) {
	var r struct {
		Custom *string `json:"custom_id"`
		Result *struct {
			Type    string   `json:"type"`
			Message wire.Raw `json:"message"`
		} `json:"result"`
		Response *struct {
			Status count    `json:"status_code"`
			Body   wire.Raw `json:"body"`
		} `json:"response"`
		Error wire.Raw `json:"error"`
	}
	if wire.UnmarshalPart(line, &r) != nil || r.Custom == nil || r.Result == nil && r.Response == nil && len(r.Error) == 0 {
		return about, false, false
	}
	switch {
	case r.Result != nil && r.Result.Type == "succeeded":
		if about, _, err := readMessage(r.Result.Message); err == nil {
			return about, true, true
		}
		return Facts{Text: int64(len(line))}, true, true
	case r.Response != nil && r.Response.Status < 400:
		return whatever(r.Response.Body), true, true
	}
	return about, false, true
}

// whatever are the facts of a reply of OpenAI, of whichever form.
func whatever(body []byte) (about Facts) {
	var r struct {
		ID    string   `json:"id"`
		Model string   `json:"model"`
		Usage wire.Raw `json:"usage"`
	}
	about.Text = int64(len(body))
	if wire.UnmarshalPart(body, &r) == nil {
		about.ID, about.Model = r.ID, r.Model
		about.takeOpenAI(r.Usage, "")
	}
	return about
}

// limits are what a request says of how long its replies may be, in all forms. They are read as floats, since clients in
// dynamic languages write 1e3.
type limits struct {
	MaxTokens float64 `json:"max_tokens"`
	MaxCompl  float64 `json:"max_completion_tokens"`
	MaxOutput float64 `json:"max_output_tokens"`
	Replies   float64 `json:"n"`
}

// BatchRequest reads one line of a file with the requests of a batch of OpenAI: the model, how many tokens a reply may
// have, and how many replies are asked for. ok is false if it is none.
func BatchRequest(line []byte) (model string, most, replies int64, ok bool) {
	var r struct {
		Custom *string  `json:"custom_id"`
		Body   wire.Raw `json:"body"`
	}
	if len(line) == 0 || line[0] != '{' || wire.UnmarshalPart(line, &r) != nil || r.Custom == nil {
		return "", 0, 0, false
	}
	var q struct {
		Model string `json:"model"`
		limits
	}
	if wire.UnmarshalPart(r.Body, &q) != nil {
		return "", 0, 0, true
	}
	return q.Model, int64(min(cmp.Or(max(q.MaxTokens, q.MaxCompl, q.MaxOutput), 0), 1e15)),
		int64(min(max(q.Replies, 0), 1e6)), true
}

// BatchedMessage reads a request of a batch of Anthropic: the model, and how many tokens the reply may have.
func BatchedMessage(element []byte) (model string, most int64) {
	var r struct {
		Params struct {
			Model string `json:"model"`
			limits
		} `json:"params"`
	}
	if wire.UnmarshalPart(element, &r) != nil {
		return "", 0
	}
	return r.Params.Model, int64(min(max(r.Params.MaxTokens, 0), 1e15))
}

// Job is what a batch of OpenAI says of itself.
type Job struct {
	ID     string `json:"id"`
	Object string `json:"object"`
	Input  string `json:"input_file_id"`
	Output string `json:"output_file_id"`
	Status string `json:"status"`
	Counts struct {
		Completed count `json:"completed"`
	} `json:"request_counts"`
}

// Unpaid reports whether the batch has ended without a result.
func (j *Job) Unpaid() bool {
	ended := j.Status == "failed" || j.Status == "expired" || j.Status == "cancelled" || j.Status == "completed"
	return ended && j.Output == "" && j.Counts.Completed == 0
}

// Jobs are the batches in a reply of OpenAI: one, or a list of them.
func Jobs(reply []byte) []Job {
	var r struct {
		Job
		Data []Job `json:"data"`
	}
	if wire.UnmarshalPart(reply, &r) != nil {
		return nil
	}
	if r.Object == "batch" {
		return []Job{r.Job}
	}
	return r.Data
}
