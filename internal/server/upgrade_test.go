package server_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/counter"
	"signalbox/internal/ledger"
	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/task"
	"signalbox/internal/task/proof"
	"signalbox/internal/testbed"
)

// emptyTables are the tables that have no rows in a database of version 0.1, before or
// after it was brought up to date, and why.
var emptyTables = map[string]string{
	"alarm":                "version 0.1 raised none",
	"behalf_entry":         "it follows the ledger of a server that runs, and version 0.1 had no users",
	"chat_heard":           "version 0.1 did not record what people wrote to the bot",
	"chat_post":            "version 0.1 did not record what people wrote to the bot",
	"chat_run":             "version 0.1 did not record what people wrote to the bot",
	"chat_session":         "version 0.1 did not record what people wrote to the bot",
	"chat_told":            "version 0.1 did not record what people wrote to the bot",
	"counter_decision":     "everything is counted again when the server runs",
	"counter_deck":         "everything is counted again when the server runs",
	"counter_hour":         "everything is counted again when the server runs",
	"counter_name":         "everything is counted again when the server runs",
	"witness_log":          "it is what this server cosigned for others, which version 0.1 did not",
	"witness_checkpoint":   "it has cosignatures of witnesses, which version 0.1 did not ask for",
	"counter_sum":          "everything is counted again when the server runs",
	"delivery_runner":      "a runner has a row only while its server runs",
	"handoff":              "version 0.1 knew of none",
	"harness_spool":        "clients of version 0.1 kept none",
	"harness_spool_step":   "clients of version 0.1 kept none",
	"mail_attachment_away": "hosts of version 0.1 fetched no files from others",
	"mail_home":            "hosts of version 0.1 did not agree on addresses",
	"mail_rotation":        "version 0.1 did not keep the proofs",
	"mail_duties":          "version 0.1 knew of none",
	"mail_signed":          "in version 0.1 every signature was good again",
	"passkey":              "version 0.1 had none",
	"proxy_due":            "version 0.1 did not count batches",
	"proxy_run":            "version 0.1 did not note the runs of calls",
	"schedule":             "version 0.1 had no schedules",
	"schedule_due":         "version 0.1 had no schedules",
	"run_session":          "version 0.1 did not keep what CLIs report of sessions",
	"run_usage":            "version 0.1 did not count by model",
	"policy_layer":         "version 0.1 had the server's policy alone",
	"task_plan":            "version 0.1 kept no dispatches",
	"user_login":           "version 0.1 took no tokens of users",
}

// oldBox is a data folder that version 0.1 left behind, and what its last calls answered.
// testdata/v0.1/README.md says how it was made.
type oldBox struct {
	dir, address string

	MadeAt    time.Time         `json:"made_at"`
	Agents    []string          `json:"agents"`
	Operators []string          `json:"operators"`
	Gates     map[string]string `json:"gates"` // ids to statuses
	Tasks     map[string]string `json:"tasks"` // WORKSPACE/TASK to statuses
	Inbox     []string          `json:"inbox"` // of bob: ids of messages

	Bob, Coder, Caller, Reviewer string // keys of agents
	Password                     string // of the operator otto

	HalfVoted     string `json:"half_voted"` // a gate with one vote of two
	Unread        string // a message to bob
	Attachment    string // of that message
	Knowledge     string
	ProxyPending  string `json:"proxy_pending"`
	StepPending   string `json:"step_pending"`
	PromptPending string `json:"prompt_pending"`
	Run           string
}

// openVersion01 unpacks what version 0.1 made on the kind of database at the address,
// which is empty.
func openVersion01(t *testing.T, address string) *oldBox {
	t.Helper()
	old, archive := &oldBox{dir: t.TempDir()}, "sqlite.tar.gz"
	if strings.HasPrefix(address, "postgres") {
		old.address, archive = address, "postgres.tar.gz"
	}
	unpack(t, filepath.Join("testdata", "v0.1", archive), old.dir)
	text, err := os.ReadFile(filepath.Join(old.dir, "facts.json"))
	if err == nil {
		err = json.Unmarshal(text, old)
	}
	if err != nil {
		t.Fatal(err)
	}
	if old.address != "" {
		dump := testbed.Read(t, filepath.Join(old.dir, "dump.sql"))
		storetest.Load(t, address, string(dump))
	}
	// The server's clock goes on from where the old one stopped, however long ago that is.
	ahead := time.Until(old.MadeAt).String()
	testbed.Write(t, filepath.Join(old.data(), "clock.ahead"), ahead+"\n")
	return old
}

func (old *oldBox) data() string { return filepath.Join(old.dir, "data") }

// unpack writes the files of an archive into a folder.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(plain); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(head.Name))
		if head.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, head.FileInfo().Mode())
		} else {
			var text []byte
			if text, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(path, text, head.FileInfo().Mode())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tableLine is a line of a schema that names a table.
var tableLine = regexp.MustCompile(`(?m)^(?:CREATE (?:VIRTUAL )?TABLE|table) '?(\w+)`)

// withoutRows are the tables of a database that have no rows.
func withoutRows(t *testing.T, db *store.DB) []string {
	t.Helper()
	schema, err := db.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var empty, seen []string
	for _, found := range tableLine.FindAllStringSubmatch(schema, -1) {
		table := found[1]
		if slices.Contains(seen, table) { // PostgreSQL has a line for each column
			continue
		}
		seen = append(seen, table)
		var rows int64
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+table, nil, &rows); err != nil {
			t.Fatal(err)
		}
		if rows == 0 {
			empty = append(empty, table)
		}
	}
	if len(seen) < 70 {
		t.Fatalf("only %d tables were found: %v", len(seen), seen)
	}
	return empty
}

// migrate brings the database up to date and looks at what came of it, before a server
// changes anything.
func (old *oldBox) migrate(t *testing.T) {
	t.Helper()
	address := old.address
	if address == "" {
		address = filepath.Join(old.data(), server.DatabaseFile)
	}
	db, err := store.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range withoutRows(t, db) {
		if emptyTables[table] == "" {
			t.Errorf("the database of version 0.1 has no rows in %s", table)
		}
	}
	if err := db.Migrate(t.Context(), server.Migrations()...); err != nil {
		t.Fatal(err)
	}
	empty := withoutRows(t, db)
	for _, table := range empty {
		if emptyTables[table] == "" {
			t.Errorf("%s has no rows after the migration. Fill it, or say in emptyTables why version 0.1 has none.", table)
		}
	}
	for table := range emptyTables {
		if !slices.Contains(empty, table) {
			t.Errorf("%s has rows after the migration, or is gone. Take it out of emptyTables.", table)
		}
	}
	schema, err := db.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	golden := testbed.Read(t, filepath.Join("testdata", "schema."+db.Name()))
	if diff := cmp.Diff(string(golden), schema); diff != "" {
		t.Errorf("the schema is not that of a new database (-new +migrated):\n%s", diff)
	}
	wantRebuilt(t, db, 500)
}

// wantVerified fails the test when an export is not what version 0.1 has signed, and
// what this version has since.
func (b *box) wantVerified(t *testing.T, key string, signed []byte) {
	t.Helper()
	status, export, _ := b.do(request{call: "GET /ops/ledger/export", token: b.token()})
	if status != 200 {
		t.Fatalf("%d %.300s", status, export)
	}
	got, err := ledger.VerifyExport(strings.NewReader(export), key, &ledger.Against{Signed: signed}, ledger.Watch{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Checkpoint < 500 || got.Entries < got.Checkpoint || got.Erased == 0 {
		t.Errorf("%+v", got)
	}
}

func TestWhatVersion01LeftIsBroughtUpToDateAndServed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		old := openVersion01(t, address)
		key := testbed.Read(t, filepath.Join(old.data(), ledger.PublicKeyFile))
		signed := testbed.Read(t, filepath.Join(old.data(), ledger.CheckpointFile))
		old.migrate(t)
		b := start(t, old.address, map[string]string{
			"data": old.data(), "tasks.plan_approval": "true", "harness.timeout": "3s",
		})
		if status, text, _ := b.do(request{call: "GET /readyz"}); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		b.wantVerified(t, string(key), signed)

		old.isCountedAgain(b)
		old.knowsEverybody(b)
		old.keepsGates(b)
		old.keepsMail(b)
		old.keepsApprovalsOfSteps(b)
		old.keepsApprovalsOfModelCalls(b)
		old.keepsWork(b)

		// Every deadline that was set then passes.
		later := old.MadeAt.AddDate(0, 3, 0).Format(time.RFC3339)
		b.ops(200, "PUT /ops/clock", fmt.Sprintf(`{"now":%q}`, later), nil)
		rejected := b.gateStatuses("rejected")
		for _, id := range []string{old.StepPending, old.ProxyPending, old.PromptPending} {
			if rejected[id] == "" {
				t.Errorf("the gate %s, which nobody decides in time, is not rejected", id)
			}
		}
		b.wantVerified(t, string(key), signed)
		b.wantRebuilt(500)
	})
}

// isCountedAgain compares the counters, which version 0.1 kept by day, with what it left.
func (old *oldBox) isCountedAgain(b *box) {
	b.t.Helper()
	r := b.counted("from=" + old.MadeAt.AddDate(0, 0, -364).Format(time.DateOnly))
	wantParts(b.t, r)
	opened, resolved := int64(len(old.Gates)), int64(0)
	for _, status := range old.Gates {
		if status != "pending" {
			resolved++
		}
	}
	g := r.Total.Gates
	if g.Opened != opened || g.Approved+g.Rejected+g.Expired+g.Withdrawn != resolved || g.Waiting != opened-resolved {
		b.t.Errorf("%d gates were opened and %d resolved, and counted are %+v", opened, resolved, g)
	}
	// Its resolutions did not say of which protocol they were.
	for _, p := range r.Protocols {
		if p.Name == "" && p.Counts.Gates != (counter.Tallies{}) {
			b.t.Errorf("gates of no protocol: %+v", p)
		}
	}
	if r.Total.CostUSD == 0 || r.Total.InputTokens == 0 || r.Total.Runs.Completed == 0 {
		b.t.Errorf("%+v", r.Total)
	}
}

func (old *oldBox) knowsEverybody(b *box) {
	b.t.Helper()
	var agents struct{ Agents []struct{ Name string } }
	var operators struct{ Operators []struct{ Name string } }
	var names []string
	for _, workspace := range []string{"default", "lab"} {
		b.ops(200, "GET /ops/agents?limit=100&workspace="+workspace, "", &agents)
		for _, a := range agents.Agents {
			names = append(names, a.Name)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(old.Agents, names); diff != "" {
		b.t.Errorf("agents (-want +got):\n%s", diff)
	}
	b.ops(200, "GET /ops/operators", "", &operators)
	names = nil
	for _, o := range operators.Operators {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	if diff := cmp.Diff(old.Operators, names); diff != "" {
		b.t.Errorf("operators (-want +got):\n%s", diff)
	}
	login := url.Values{"name": {"otto"}, "password": {old.Password}}
	status, page, _ := b.visitor().post("/ui/login/password", login)
	if status != 200 || !strings.Contains(page, "<h1>Inbox</h1>") {
		b.t.Errorf("the password does not sign in: %d", status)
	}
}

// gateStatuses are the gates of one status.
func (b *box) gateStatuses(status string) map[string]string {
	b.t.Helper()
	all := map[string]string{}
	var page struct{ Gates []struct{ ID, Status string } }
	b.ops(200, "GET /ops/gates?limit=200&status="+status, "", &page)
	for _, g := range page.Gates {
		all[g.ID] = g.Status
	}
	return all
}

func (old *oldBox) keepsGates(b *box) {
	b.t.Helper()
	got := map[string]string{}
	for _, status := range []string{"pending", "approved", "rejected"} {
		for id, s := range b.gateStatuses(status) {
			got[id] = s
		}
	}
	if diff := cmp.Diff(old.Gates, got); diff != "" {
		b.t.Errorf("gates (-want +got):\n%s", diff)
	}
	// One vote of two was cast then; the second one decides.
	var g struct{ Status string }
	b.ops(200, "POST /ops/gates/"+old.HalfVoted+"/approve", "", &g)
	if g.Status != "approved" {
		b.t.Errorf("the gate with both votes is %s", g.Status)
	}
}

func (old *oldBox) keepsMail(b *box) {
	b.t.Helper()
	bob := &mailAgent{box: b, key: old.Bob}
	var got []string
	for _, m := range bob.inbox() {
		got = append(got, m.ID)
	}
	if diff := cmp.Diff(old.Inbox, got); diff != "" {
		b.t.Errorf("what waits for bob (-want +got):\n%s", diff)
	}
	if text := bob.amp(200, "GET /v1/attachments/"+old.Attachment+"/download", "", nil); text != "Order number 7\n" {
		b.t.Errorf("the attachment is %q", text)
	}
	bob.amp(200, "DELETE /v1/messages/pending/"+old.Unread, "", nil)
	if left := bob.inbox(); len(left) != len(old.Inbox)-1 {
		b.t.Errorf("after an acknowledgement there are %d messages", len(left))
	}
}

// keepsApprovalsOfSteps asks over AHP what was asked then. An approval is good for the
// very same bytes, so these are written as they were.
func (old *oldBox) keepsApprovalsOfSteps(b *box) {
	b.t.Helper()
	var rejected struct{ Gates []struct{ ID, Title string } }
	b.ops(200, "GET /ops/gates?limit=200&status=rejected", "", &rejected)
	no := ""
	for _, g := range rejected.Gates {
		if g.Title == "bash: make deploy 2" {
			no = `"Rejected by an operator (` + g.ID + `): Said by a test."`
		}
	}
	for _, c := range []struct{ command, says string }{
		{"make deploy 1", `"decision":"allow"`},  // approved for an hour
		{"make release 2", `"decision":"allow"`}, // approved once, and not used then
		{"make release 2", `"decision":"defer"`}, // used now
		{"make release 1", `"decision":"defer"`}, // used then
		{"make deploy 2", no},                    // and no other gate
		{"make deploy 3", old.StepPending},
	} {
		_, answer := b.ahp(old.Coder, `{"jsonrpc":"2.0","id":"1","method":"ahp/event","params":{"event_type":"pre_action",
			"session_id":"build","agent_id":"a","timestamp":"2026-03-06T22:10:38Z","depth":0,
			"payload":{"tool_name": "bash", "arguments": {"command": "`+c.command+`"}}}}`)
		if c.says == "" || !strings.Contains(answer, c.says) {
			b.t.Errorf("%s: %s", c.command, answer)
		}
	}
}

// keepsApprovalsOfModelCalls makes calls that were made then. The provider is away, so a
// reply comes from the ledger or not at all.
func (old *oldBox) keepsApprovalsOfModelCalls(b *box) {
	b.t.Helper()
	for _, c := range []struct {
		text   string
		status int
		says   string
	}{
		{"run: make deploy site", 200, `"command": "make deploy site"`}, // approved, and not released then
		{"run: make deploy site", 200, `"command": "make deploy site"`}, // approved for an hour
		{"run: make release site", 502, ""},                             // used then, so it goes to the provider
		{"run: make deploy twice", 200, "Said by a test."},              // rejected
		{"run: make deploy last", 202, old.ProxyPending},
		{"An expensive question", 202, old.PromptPending},
	} {
		body := `{"model": "claude-sonnet-4-6", "max_tokens": 50, ` +
			`"messages": [{"role": "user", "content": "` + c.text +
			`"}], "tools": [{"name": "bash", "description": "d", "input_schema": {"type": "object"}}]}`
		status, answer, _ := b.do(request{call: "POST /v1/proxy/v1/messages", token: old.Caller, body: body})
		if status != c.status || !strings.Contains(answer, c.says) {
			b.t.Errorf("%s: %d, want %d with %s: %s", c.text, status, c.status, c.says, answer)
		}
	}
	var keys struct {
		Keys []struct{ Readable bool }
	}
	b.ops(200, "GET /ops/proxy/keys", "", &keys)
	if len(keys.Keys) != 2 || !keys.Keys[0].Readable || !keys.Keys[1].Readable {
		b.t.Errorf("the vault: %+v", keys)
	}
}

// keepsWork looks at tasks, runs, sessions, knowledge, the policy, the prices and decks.
func (old *oldBox) keepsWork(b *box) {
	b.t.Helper()
	got := map[string]string{}
	for _, workspace := range []string{"default", "lab"} {
		var board struct {
			Tasks []struct {
				ID     string `json:"task_id"`
				Status string `json:"task_status"`
			}
		}
		b.ops(200, "GET /amp/tasks?limit=100&workspace="+workspace, "", &board)
		for _, t := range board.Tasks {
			got[workspace+"/"+t.ID] = t.Status
		}
	}
	if diff := cmp.Diff(old.Tasks, got); diff != "" {
		b.t.Errorf("tasks (-want +got):\n%s", diff)
	}
	for name := range got {
		workspace, id, _ := strings.Cut(name, "/")
		var bundle task.Bundle
		b.ops(200, "GET /amp/tasks/"+id+"/bundle?workspace="+workspace, "", &bundle)
		if _, err := proof.Verify(&bundle, bundle.Key); err != nil {
			b.t.Errorf("%s, which went by the rules of version 0.1: %v", name, err)
		}
	}
	for _, c := range []struct{ call, token, says string }{
		{"GET /amp/messages", old.Reviewer, `"msg_id":"review_request-T-2026-101-1772116329000"`},
		{"GET /runs/" + old.Run, b.token(), `"prompt":"Fix the timer"`},
		{"GET /ops/sessions/build", b.token(), "make release 1"},
		{"GET /ops/knowledge?search=timer", b.token(), old.Knowledge},
		{"GET /ops/policy", b.token(), "payments-take-two"},
		{"GET /ops/policy/versions", b.token(), `"number":3`},
		{"GET /amp/pricing", "", `"version":2`},
		{"GET /ops/decks", b.token(), `"title":"The newsletter"`},
		{"GET /ops/messages?search=afar", b.token(), `"subject":"From afar"`},
	} {
		status, answer, _ := b.do(request{call: c.call, token: c.token})
		if status != 200 || !strings.Contains(answer, c.says) {
			b.t.Errorf("%s: %d, without %s: %.600s", c.call, status, c.says, answer)
		}
	}
}
