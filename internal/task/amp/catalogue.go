package amp

// Meaning is a code with the layer that finds it and what it means.
type Meaning struct {
	Code  Code
	Layer Layer // "" for a warning: the document is taken all the same
	Text  string
}

// Catalogue has every code once, in the order in which the layers are applied. docs/errors.md is made from
// it; the rules (R-…) are those of docs/protocols/tasks.md.
var Catalogue = []Meaning{
	{BadJSON, LayerParse, "The body is not one JSON object (R-002)."},
	{DuplicateKey, LayerParse, "A name stands in an object twice (R-002)."},
	{TooLarge, LayerParse, "The document is larger than 1 MiB (R-002)."},

	{MissingField, LayerSchema, "A required field is absent; the pointer names it."},
	{WrongType, LayerSchema, "A field has another JSON type than the schema says."},
	{NotInEnum, LayerSchema, "A field should be one of a few words; the problem lists them."},
	{WrongFormat, LayerSchema, "A field does not have its form, such as `T-2026-044` for a task id."},
	{OutOfRange, LayerSchema, "A number is outside of its range."},
	{Empty, LayerSchema, "A text is empty or blank."},
	{UnknownField, LayerSchema, "The field is not known. Fields of your own begin with `x_`."},
	{WrongVersion, LayerSchema, "The version is not supported (R-004)."},
	{WrongRoute, LayerSchema, "This role may not send this message to that role."},
	{AckRequired, LayerSchema, "A message of this type has `requires_ack` true (R-009)."},
	{AckTimeoutForbidden, LayerSchema, "`ack_timeout_sec` is only for messages with `requires_ack` (R-010)."},
	{BranchProtected, LayerSchema, "The branch is main or master; work happens on a branch of its own (R-103)."},
	{RepoPath, LayerSchema, "The repository should be an absolute path (R-102)."},
	{CriteriaEmpty, LayerSchema, "`acceptance_criteria` has to name at least one criterion (R-105)."},
	{BlockersRequired, LayerSchema, "A result that is partial or failed names its blockers (R-208)."},
	{IssuesRequired, LayerSchema, "A rejection names at least one issue (R-404)."},
	{FixesRequired, LayerSchema, "`approved_with_fix` lists the fixes (R-405)."},
	{FixScope, LayerSchema, "A direct fix is a typo, lint, whitespace or import change of fewer than 5 lines (R-406)."},
	{SuspendFlag, LayerSchema, "`auto_suspended` may be false at severity info only (R-508)."},
	{DuplicateItem, LayerSchema, "A list has the same item twice."},
	{SchemaBroken, LayerSchema, "The document breaks the schema in a way that has no code of its own."},

	{MsgIDMismatch, LayerSemantic, "`msg_id` has another type or task than the message (R-006)."},
	{WrongSubtaskID, LayerSemantic, "The id of a subtask does not begin with the id of its task (R-104)."},
	{Misaligned, LayerSemantic, "A list does not go through the acceptance criteria one by one (R-204, R-402)."},
	{ResultInconsistent, LayerSemantic, "The result is complete although a criterion is not met (R-202)."},
	{VerdictInconsistent, LayerSemantic, "The decision does not follow from the criteria and issues (R-405, R-409)."},
	{CIGated, LayerSemantic, "CI failed: dispatch a fix before asking for a review (R-310)."},
	{TriggerMismatch, LayerSemantic, "`triggered_by` is not the sender (R-503)."},
	{RefWrongTask, LayerSemantic, "A reference names a message of another task (R-302)."},
	{RefSelf, LayerSemantic, "A message refers to itself."},
	{LockWarningRequired, LayerSemantic, "The notes have to say that the lock is near (R-309)."},

	{AuthRole, LayerAuth, "The key plays another role than `from` says (R-005)."},
	{AuthPolicy, LayerAuth, "The operator's policy forbids it."},

	{MsgIDConflict, LayerContext, "The id was used before, with other content (R-006)."},
	{RefUnresolved, LayerContext, "A reference names a message that is not stored (R-011, R-308)."},
	{RefMismatch, LayerContext, "A reference does not name the newest message of its type (R-302)."},
	{PlanNotApproved, LayerContext, "No person has approved the plan yet (R-111)."},
	{WrongState, LayerContext, "The task is not in a state that takes this message."},
	{Suspended, LayerContext, "The task or the party is suspended until the admin resumes it (R-510)."},
	{Locked, LayerContext, "The task was rejected too often and is locked (R-511)."},
	{SubtaskUnknown, LayerContext, "The dispatch has no such subtask (R-201)."},
	{ResultNotComplete, LayerContext, "A review takes a result that is complete (R-301)."},
	{WrongRejectCount, LayerContext, "`reject_count` is not what the server has counted (R-305)."},
	{NoPriorVerdict, LayerContext, "An incremental review takes an earlier verdict (R-303)."},
	{CriteriaChanged, LayerContext, "The criteria are not those of the dispatch."},
	{RiskLowered, LayerContext, "Only the admin lowers the risk of a task (R-110)."},
	{BranchChanged, LayerContext, "The branch or the repository is not that of the first dispatch."},
	{RepoNotGit, LayerContext, "There is no git repository at the path (R-102)."},
	{CommitUnknown, LayerContext, "The repository does not have the commit (R-207)."},
	{CommitNotOnBranch, LayerContext, "The commit is not on the branch of the task (R-207)."},
	{BranchFrozen, LayerContext, "The branch was changed although the task waits for its review (R-209)."},

	{WarnLockMissing, "", "The notes do not say that the lock is near (R-309)."},
	{WarnLowConfidence, "", "The reviewer's confidence is low; a person should look."},
	{WarnUnverified, "", "A criterion could not be verified."},
	{WarnNoCommit, "", "The result names no commit."},
	{WarnEmptyLog, "", "The work log is empty."},
	{WarnLegacyImport, "", "A fix uses an older word for an import change."},
	{WarnNoAffected, "", "The escalation names no affected message (R-505)."},
	{WarnDiff, "", "The reported diff differs from git's (R-203)."},
}
