package client

import (
	"encoding/json" // the client imports the standard library alone
	"fmt"
	"net/http"
	"strings"

	"signalbox/client/internal/strict"
)

// Status is the state of a signal or a gate.
type Status string

// The three statuses. An answer with any other is an error.
const (
	StatusApproved Status = "approved"
	StatusRejected Status = "rejected"
	StatusPending  Status = "pending"
)

// Answer is what the server says about a signal or a gate. It is one of three: approved, rejected, or
// pending with a GateID.
type Answer struct {
	Status    Status
	GateID    string   // "" if a rule decided and no gate was opened
	Message   string   // for people: the operator's note, or the rule
	Duplicate bool     // the same message had arrived before
	Warnings  []string // what is odd about the message, such as unknown fields
}

// maxAnswer is how many bytes of an answer are read, far more than a real one has.
const maxAnswer = 1 << 20

// readAnswer reads the body of a 200 or 202. What is not exactly an answer is an error: a page that a
// proxy on the way has made must not approve anything.
func readAnswer(r reply) (Answer, error) {
	var a Answer
	members, err := strict.Object(r.body)
	if err != nil {
		return a, &unreadableError{fmt.Sprintf("the answer %s is not a JSON object: %s", r.status, err)}
	}
	if err := json.Unmarshal(members["status"], &a.Status); err != nil {
		return a, &unreadableError{fmt.Sprintf("the answer %s has no status", r.status)}
	}
	var gate *string
	if err := json.Unmarshal(members["gate_id"], &gate); err != nil {
		return Answer{}, &unreadableError{fmt.Sprintf("the answer %s has no gate_id", r.status)}
	}
	if gate != nil {
		a.GateID = *gate
	}
	// The message is for people. Without one the status still counts.
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
			&unreadableError{fmt.Sprintf("the answer %s has the status %.40q, which does not go with it", r.status, a.Status)}
	}
	return a, nil
}
