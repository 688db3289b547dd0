package client

import (
	"encoding/json" // the client imports the standard library alone
	"fmt"
	"net/http"
	"strings"

	"signalbox/client/internal/strict"
)

// Status is what became of a signal or a gate.
type Status string

// The three statuses. There are no others: an answer with another is an error.
const (
	StatusApproved Status = "approved"
	StatusRejected Status = "rejected"
	StatusPending  Status = "pending"
)

// Answer is what the server says to a signal, and of a gate.
type Answer struct {
	Status    Status
	GateID    string // "" when no gate was opened
	Message   string
	Duplicate bool     // the run was signalled before, with the same content
	Warnings  []string // what is odd about the signal
}

// maxAnswer is far more than an answer has.
const maxAnswer = 1 << 20

// readAnswer reads an answer of a good status. What is not exactly an answer is an
// error: nothing is approved by a page that some proxy made up.
func readAnswer(r reply) (Answer, error) {
	var a Answer
	members, err := strict.Object(r.body)
	if err != nil {
		return a, &unclear{fmt.Sprintf("the answer %s is not a JSON object: %s", r.status, err)}
	}
	if err := json.Unmarshal(members["status"], &a.Status); err != nil {
		return a, &unclear{fmt.Sprintf("the answer %s has no status", r.status)}
	}
	var gate *string
	if err := json.Unmarshal(members["gate_id"], &gate); err != nil {
		return Answer{}, &unclear{fmt.Sprintf("the answer %s has no gate_id", r.status)}
	}
	if gate != nil {
		a.GateID = *gate
	}
	// What an operator wrote is shown; without it the status still counts.
	_ = json.Unmarshal(members["message"], &a.Message)
	a.Duplicate = r.header.Get("AMP-Duplicate") == "true"
	if w := r.header.Get("AMP-Warnings"); w != "" {
		a.Warnings = strings.Split(w, "; ")
	}
	switch {
	case a.Status == StatusApproved && r.code == http.StatusOK:
	case a.Status == StatusRejected && r.code == http.StatusOK:
	case a.Status == StatusPending && r.code == http.StatusAccepted && a.GateID != "":
	default:
		return Answer{},
			&unclear{fmt.Sprintf("the answer %s has the status %.40q, which does not go with it", r.status, a.Status)}
	}
	return a, nil
}
