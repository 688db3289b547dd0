package amp

import "net/http"

// Code is a stable word of AMP/1.0 for what is wrong with a document, or worth a warning. Agents
// match on it; it never changes.
type Code string

// The codes, by the layer that finds them.
const (
	// Parse: the bytes are no JSON document that can be accepted. HTTP 400 or 413.
	BadJSON      Code = "AMP_E_JSON"
	DuplicateKey Code = "AMP_E_DUPLICATE_KEY"
	TooLarge     Code = "AMP_E_TOO_LARGE"

	// Schema: a field breaks its form. HTTP 422.
	MissingField        Code = "AMP_E_MISSING_FIELD"
	WrongType           Code = "AMP_E_TYPE"
	NotInEnum           Code = "AMP_E_ENUM"
	WrongFormat         Code = "AMP_E_FORMAT"
	OutOfRange          Code = "AMP_E_RANGE"
	Empty               Code = "AMP_E_EMPTY"
	UnknownField        Code = "AMP_E_UNKNOWN_FIELD"
	WrongVersion        Code = "AMP_E_VERSION"
	WrongRoute          Code = "AMP_E_ROUTE"
	AckRequired         Code = "AMP_E_ACK_REQUIRED"
	AckTimeoutForbidden Code = "AMP_E_ACK_TIMEOUT_FORBIDDEN"
	BranchProtected     Code = "AMP_E_BRANCH_PROTECTED"
	RepoPath            Code = "AMP_E_REPO_PATH"
	CriteriaEmpty       Code = "AMP_E_CRITERIA_EMPTY"
	BlockersRequired    Code = "AMP_E_BLOCKERS_REQUIRED"
	IssuesRequired      Code = "AMP_E_ISSUES_REQUIRED"
	FixesRequired       Code = "AMP_E_DIRECT_FIXES_REQUIRED"
	FixScope            Code = "AMP_E_DIRECT_FIX_SCOPE"
	SuspendFlag         Code = "AMP_E_SUSPEND_FLAG"
	DuplicateItem       Code = "AMP_E_DUPLICATE_ITEM"
	SchemaBroken        Code = "AMP_E_SCHEMA" // a keyword that has no code of its own

	// Semantic: every field is right, and they contradict each other. HTTP 422.
	MsgIDMismatch       Code = "AMP_E_MSG_ID_MISMATCH"
	WrongSubtaskID      Code = "AMP_E_SUBTASK_ID"
	Misaligned          Code = "AMP_E_ALIGNMENT"
	ResultInconsistent  Code = "AMP_E_RESULT_INCONSISTENT"
	VerdictInconsistent Code = "AMP_E_VERDICT_INCONSISTENT"
	CIGated             Code = "AMP_E_CI_GATED"
	TriggerMismatch     Code = "AMP_E_TRIGGER_MISMATCH"
	RefWrongTask        Code = "AMP_E_REF_WRONG_TASK"
	RefSelf             Code = "AMP_E_REF_SELF"
	LockWarningRequired Code = "AMP_E_LOCK_WARNING_MISSING"

	// Auth: this key may not send this document. HTTP 403.
	AuthRole   Code = "AMP_E_AUTH_ROLE"
	AuthPolicy Code = "AMP_E_POLICY" // ours: the operator's policy forbids it

	// Context: the document does not fit the task as it stands. HTTP 409, or 423 for the two holds.
	MsgIDConflict     Code = "AMP_E_MSG_ID_CONFLICT"
	RefUnresolved     Code = "AMP_E_REF_UNRESOLVED"
	RefMismatch       Code = "AMP_E_REF_MISMATCH"
	PlanNotApproved   Code = "AMP_E_PLAN_NOT_APPROVED"
	WrongState        Code = "AMP_E_STATE"
	Suspended         Code = "AMP_E_SUSPENDED"
	Locked            Code = "AMP_E_LOCKED"
	SubtaskUnknown    Code = "AMP_E_SUBTASK_UNKNOWN"
	ResultNotComplete Code = "AMP_E_RESULT_NOT_COMPLETE"
	WrongRejectCount  Code = "AMP_E_REJECT_COUNT"
	NoPriorVerdict    Code = "AMP_E_NO_PRIOR_VERDICT"
	CriteriaChanged   Code = "AMP_E_CRITERIA_CHANGED"
	RiskLowered       Code = "AMP_E_RISK_LOWERED"
	BranchChanged     Code = "AMP_E_BRANCH_CHANGED"
	RepoNotGit        Code = "AMP_E_REPO_NOT_GIT"
	CommitUnknown     Code = "AMP_E_COMMIT_UNKNOWN"
	CommitNotOnBranch Code = "AMP_E_COMMIT_NOT_ON_BRANCH"
	BranchFrozen      Code = "AMP_E_BRANCH_FROZEN"

	// Warnings come with documents that were accepted.
	WarnLockMissing   Code = "AMP_W_LOCK_WARNING_MISSING"
	WarnLowConfidence Code = "AMP_W_LOW_CONFIDENCE"
	WarnUnverified    Code = "AMP_W_UNVERIFIED_CRITERIA"
	WarnNoCommit      Code = "AMP_W_NO_COMMIT"
	WarnEmptyLog      Code = "AMP_W_EMPTY_WORK_LOG"
	WarnLegacyImport  Code = "AMP_W_LEGACY_IMPORT"
	WarnNoAffected    Code = "AMP_W_NO_AFFECTED_MSGS"
	WarnDiff          Code = "AMP_W_DIFF_MISMATCH"
)

// Layer is the step of the ingress that refuses a document. It decides the HTTP status.
type Layer string

// The layers, in the order in which they are applied.
const (
	LayerParse    Layer = "parse"
	LayerSchema   Layer = "schema"
	LayerSemantic Layer = "semantic"
	LayerAuth     Layer = "auth"
	LayerContext  Layer = "context"
)

// Problem is one thing that is wrong, written for the model that has to repair it: where, what,
// and what a right value looks like.
type Problem struct {
	Code     Code   `json:"code"`
	Pointer  string `json:"pointer"` // RFC 6901; "" is the whole document
	Detail   string `json:"detail,omitempty"`
	Expected string `json:"x_expected,omitempty"` // what would have been right
	Example  any    `json:"x_example,omitempty"`  // a right value
}

// Refusal is why a document was not accepted. It has at least one problem.
type Refusal struct {
	Layer    Layer
	Problems []Problem
}

// String is the first problem, for logs and errors.
func (r *Refusal) String() string {
	p := r.Problems[0]
	return string(p.Code) + " at " + p.Pointer + ": " + p.Detail
}

// refuse is a refusal with one problem.
func refuse(layer Layer, code Code, pointer, detail string) *Refusal {
	return &Refusal{layer, []Problem{{Code: code, Pointer: pointer, Detail: detail}}}
}

// expecting adds what would have been right to the first problem, and returns r.
func (r *Refusal) expecting(expected string, example any) *Refusal {
	r.Problems[0].Expected, r.Problems[0].Example = expected, example
	return r
}

// Has reports whether a code is among the problems.
func (r *Refusal) Has(code Code) bool {
	for _, p := range r.Problems {
		if p.Code == code {
			return true
		}
	}
	return false
}

// Status is the HTTP status of the refusal. Holds have one of their own (423), because waiting
// helps there and nowhere else.
func (r *Refusal) Status() int {
	switch {
	case r.Has(TooLarge):
		return http.StatusRequestEntityTooLarge
	case r.Layer == LayerParse:
		return http.StatusBadRequest
	case r.Layer == LayerAuth:
		return http.StatusForbidden
	case r.Has(Suspended) || r.Has(Locked):
		return http.StatusLocked
	case r.Layer == LayerContext:
		return http.StatusConflict
	}
	return http.StatusUnprocessableEntity
}
