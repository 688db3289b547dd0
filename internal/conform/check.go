package conform

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"signalbox/internal/wire"
)

// answer is a reply in the form of signals, parsed.
type answer struct {
	status, gate, message string
}

// fault is a reply in the form of errors, parsed.
type fault struct {
	Error   string `json:"error"`
	Message string `json:"message"`
	Field   string `json:"field"`
	Details struct {
		Fields    map[string]string `json:"fields"`
		Supported []string          `json:"supported"`
	} `json:"details"`
}

// readAnswer parses the three fields, allows no others, and checks that they agree with
// each other and with the status code. Every answer is checked so, whatever the case
// expects.
func readAnswer(code int, body []byte) (answer, error) {
	var a answer
	members, err := wire.Members(body)
	if err != nil {
		return a, fmt.Errorf("the answer is not a JSON object (%w): %.200s", err, body)
	}
	// Exactly three fields, as the protocol has it.
	if names := slices.Sorted(maps.Keys(members)); !slices.Equal(names, []string{"gate_id", "message", "status"}) {
		return a, fmt.Errorf("the answer has the fields %s, and should have exactly status, gate_id and message",
			strings.Join(names, ", "))
	}
	var gate *string
	if wire.UnmarshalPart(members["status"], &a.status) != nil ||
		wire.UnmarshalPart(members["message"], &a.message) != nil || wire.UnmarshalPart(members["gate_id"], &gate) != nil {
		return a, fmt.Errorf("status and message should be text and gate_id text or null: %.200s", body)
	}
	if gate != nil {
		if a.gate = *gate; !strings.HasPrefix(a.gate, "gate_") {
			return a, fmt.Errorf("gate_id should begin with gate_, or be null, and is %.80q", a.gate)
		}
	}
	want := http.StatusOK
	switch {
	// Without a gate nobody could wait for the decision.
	case a.status == "pending" && a.gate == "":
		return a, errors.New("the answer is pending and has no gate_id")
	case a.status == "pending":
		want = http.StatusAccepted
	case a.status != "approved" && a.status != "rejected":
		return a, fmt.Errorf("the status is %.40q, and should be approved, rejected or pending", a.status)
	}
	if code != want {
		return a, fmt.Errorf("the answer is %s with %d, and should be with %d", a.status, code, want)
	}
	if a.message == "" {
		return a, errors.New("the message is empty")
	}
	return a, nil
}

// check compares a reply with what is expected. before is the gate of the step before.
// The answer is returned also with an error, as far as it could be read.
func (e Expect) check(r reply, before string) (answer, error) {
	want := e.HTTP
	if e.Wrong != nil {
		want = http.StatusBadRequest
	}
	switch {
	case want != 0 && r.http != want:
		return answer{}, fmt.Errorf("answered with %d, and should be with %d: %.300s", r.http, want, r.body)
	case e.Taken && r.http != http.StatusOK && r.http != http.StatusAccepted:
		return answer{}, fmt.Errorf("answered with %d, and should be taken: %.300s", r.http, r.body)
	}
	if err := e.checkAround(r); err != nil {
		return answer{}, err
	}
	if e.Events != nil {
		return e.checkEvents(r)
	}
	if media := r.header.Get("Content-Type"); !strings.HasPrefix(media, "application/json") {
		return answer{}, fmt.Errorf("the answer is %q, and should be application/json", media)
	}
	if r.http >= http.StatusBadRequest {
		return answer{}, e.checkFault(r)
	}
	a, err := readAnswer(r.http, r.body)
	if err != nil {
		return a, err
	}
	return a, e.checkAnswer(a, before)
}

// checkAround checks headers, a part of the text, and how long the answer took.
func (e Expect) checkAround(r reply) error {
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if got, there := r.header.Get(name), len(r.header.Values(name)) > 0; !there ||
			!strings.Contains(got, e.Headers[name]) {
			return fmt.Errorf("the header %s is %q, and should have %q", name, got, e.Headers[name])
		}
	}
	for _, name := range e.Absent {
		if got := r.header.Values(name); len(got) > 0 {
			return fmt.Errorf("the header %s is %q, and should not be there", name, got)
		}
	}
	switch {
	case !strings.Contains(string(r.body), e.Says):
		return fmt.Errorf("the answer does not say %q: %.300s", e.Says, r.body)
	case r.took < e.AtLeast:
		return fmt.Errorf("answered after %s, and should not be before %s", r.took.Round(time.Millisecond), e.AtLeast)
	case e.AtMost > 0 && r.took > e.AtMost:
		return fmt.Errorf("answered after %s, and should be within %s", r.took.Round(time.Millisecond), e.AtMost)
	}
	return nil
}

// checkAnswer checks the fields of an answer.
func (e Expect) checkAnswer(a answer, before string) error {
	switch {
	case e.Error != "" || e.HTTP >= http.StatusBadRequest:
		return fmt.Errorf("answered with %s, and should be refused", a.status)
	case e.Status != "" && a.status != e.Status:
		return fmt.Errorf("the status is %s, and should be %s (%s)", a.status, e.Status, a.message)
	case e.Message != "" && a.message != e.Message:
		return fmt.Errorf("the message is %q, and should be %q", a.message, e.Message)
	case e.Gate == "none" && a.gate != "":
		return fmt.Errorf("gate_id is %q, and should be null", a.gate)
	case e.Gate == "opened" && (a.gate == "" || a.gate == before):
		return fmt.Errorf("gate_id is %q, and should be that of a new gate", a.gate)
	case e.Gate == "same" && a.gate != before:
		return fmt.Errorf("gate_id is %q, and should be %q as before", a.gate, before)
	}
	return nil
}

// checkFault checks an error. Its form is always checked: a code, and a message for
// people.
func (e Expect) checkFault(r reply) error {
	var f fault
	if err := wire.UnmarshalPart(r.body, &f); err != nil || f.Error == "" || f.Message == "" {
		return fmt.Errorf("the error should have the fields error and message: %.300s", r.body)
	}
	code := e.Error
	if e.Wrong != nil {
		code = "invalid_payload"
	}
	switch wrong := slices.Sorted(maps.Keys(f.Details.Fields)); {
	case code != "" && f.Error != code:
		return fmt.Errorf("the error is %s, and should be %s: %s", f.Error, code, f.Message)
	case len(e.Wrong) > 0 && !slices.Equal(wrong, slices.Sorted(slices.Values(e.Wrong))):
		return fmt.Errorf("details.fields is about %s, and should be about %s", wrong, e.Wrong)
	case e.Field != "" && f.Field != e.Field:
		return fmt.Errorf("the error is about the field %q, and should be about %q", f.Field, e.Field)
	// field names the one that is wrong, if it is only one.
	case len(e.Wrong) == 1 && f.Field != e.Wrong[0]:
		return fmt.Errorf("the error is about the field %q, and should be about %q", f.Field, e.Wrong[0])
	case e.Supported != nil && !slices.Equal(f.Details.Supported, e.Supported):
		return fmt.Errorf("details.supported is %q, and should be %q", f.Details.Supported, e.Supported)
	}
	return nil
}

// checkEvents checks a stream of server-sent events that has ended: each event is an
// answer whose status is its name. Repeated events count once, since a server may send
// pending again to keep a connection open.
func (e Expect) checkEvents(r reply) (last answer, err error) {
	if media := r.header.Get("Content-Type"); !strings.HasPrefix(media, "text/event-stream") {
		return last, fmt.Errorf("the answer is %q, and should be text/event-stream: %.200s", media, r.body)
	}
	var names []string
	for event := range strings.SplitSeq(strings.TrimSpace(string(r.body)), "\n\n") {
		var name, data string
		for line := range strings.Lines(event) {
			field, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ": ")
			switch field {
			case "event":
				name = value
			case "data":
				data += value
			}
		}
		// Inside of a stream there is no status per event, so it follows from the name.
		code := http.StatusOK
		if name == "pending" {
			code = http.StatusAccepted
		}
		if last, err = readAnswer(code, []byte(data)); err != nil {
			return last, fmt.Errorf("in the event %q: %w", name, err)
		}
		if last.status != name {
			return last, fmt.Errorf("the event %q has the status %s", name, last.status)
		}
		names = append(names, name)
	}
	if !slices.Equal(slices.Compact(names), e.Events) {
		return last, fmt.Errorf("the events are %s, and should be %s", names, e.Events)
	}
	return last, nil
}
