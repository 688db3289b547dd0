package main

import (
	"cmp"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

// shown is a command that we show people somewhere.
type shown struct {
	line  string // as it is shown, %s and the like where a value goes
	where string
}

var (
	// inProse is a command between backticks, also when a raw string holds them.
	inProse = regexp.MustCompile("`(?:bin/)?(signalbox [^`]+)`")
	// inBlock is a line of a document's example.
	inBlock = regexp.MustCompile(`(?m)^(?:    |  )(?:\$ )?(?:bin/)?(signalbox .*)$`)
	// inPage is a command on a page, in what follows "code" or between the tags.
	inPage = regexp.MustCompile(`"code" "(signalbox (?:[^"\\]|\\.)*)"|<(?:code|pre)[^>]*>(signalbox [^<]*)<`)
)

// everyCommand collects the commands in the texts that the program can print and in its pages. Those of
// the documents are run by TestTheDocumentsCanBeFollowed.
func everyCommand(t *testing.T) (all []shown) {
	t.Helper()
	root := filepath.Join("..", "..")
	add := func(line, where string) {
		line = strings.TrimSpace(strings.ReplaceAll(line, "\\\n", " "))
		line, _, _ = strings.Cut(line, " # ")
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "signalbox ") || strings.Contains(line, "{{") {
			return // the rest of a text; what a page fills in is collected from the page
		}
		if !slices.ContainsFunc(all, func(s shown) bool { return s.line == line }) {
			all = append(all, shown{line, where})
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if base := d.Name(); base == "testdata" || base == "node_modules" || base != ".." && strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
			return nil
		case strings.HasSuffix(name, "_test.go"):
			return nil
		}
		switch filepath.Ext(name) {
		case ".go":
			for _, text := range literals(t, path) {
				for _, pattern := range []*regexp.Regexp{inProse, inBlock} {
					for _, found := range pattern.FindAllStringSubmatch(text, -1) {
						for line := range strings.SplitSeq(found[1], "\n") {
							add(line, name)
						}
					}
				}
			}
		case ".html":
			text, err := os.ReadFile(path)
			for _, found := range inPage.FindAllStringSubmatch(string(text), -1) {
				lines := found[2]
				if found[1] != "" {
					if lines, err = strconv.Unquote(`"` + found[1] + `"`); err != nil {
						return err
					}
				}
				for line := range strings.SplitSeq(html.UnescapeString(lines), "\n") {
					add(line, name)
				}
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// literals are the texts of a Go file, put together where it adds them; what is no literal is
// %v in them.
func literals(t *testing.T, path string) (all []string) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var text func(ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if e.Kind == token.STRING {
				s, _ := strconv.Unquote(e.Value)
				return s
			}
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				return text(e.X) + text(e.Y)
			}
		case *ast.ParenExpr:
			return text(e.X)
		}
		return "%v"
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		switch e.(type) {
		case *ast.BasicLit, *ast.BinaryExpr:
			all = append(all, text(e))
			return false
		}
		return true
	})
	return all
}

// world is where the commands of one document are run: a folder with a server that has
// seen the demo, and what a person would have beside it.
type world struct {
	t      *testing.T
	p      *process
	dir    string
	values *strings.Replacer
}

// newWorld starts a server on a copy of a data folder.
func newWorld(t *testing.T, data string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	here := filepath.Join(w.dir, "signalbox-data")
	for _, to := range []string{here, filepath.Join(w.dir, "stopped")} { // with its modes
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", data, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	agent := filepath.Join(w.dir, "bin")
	for _, folder := range []string{agent, filepath.Join(w.dir, "repo")} {
		testbed.Folder(t, folder)
	}
	for _, name := range []string{"signalbox", "claude", "amp", "codex", "gemini"} {
		target := binary
		if name != "signalbox" {
			target = runtest.CLI{Stdout: []byte(runInit + runResult)}.Write(t)
		}
		if err := os.Symlink(target, filepath.Join(agent, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.p = upIn(t, here, []string{"SIGNALBOX_RUNS_FOLDERS=" + filepath.Join(w.dir, "repo")})
	w.values = w.find()
	return w
}

// find finds what stands for the values that texts leave open.
func (w *world) find() *strings.Replacer {
	w.t.Helper()
	var gates struct{ Gates []struct{ ID string } }
	w.p.get("/ops/gates?status=pending&limit=2", &gates)
	var tasks struct {
		Tasks []struct {
			TaskID string `json:"task_id"`
		}
	}
	w.p.get("/amp/tasks", &tasks)
	key := regexp.MustCompile(`rs-amp-[0-9a-z]+`).FindString(mustRun(w.t, w.p.dir, "agents", "add", "probe-agent"))
	vectors, err := filepath.Abs(filepath.Join("..", "..", "internal", "task", "amp", "vectors"))
	if err != nil {
		w.t.Fatal(err)
	}
	var dispatch struct{ Payload json.RawMessage }
	text := testbed.Read(w.t, filepath.Join(vectors, "valid", "v01-dispatch-required-only.json"))
	if err := json.Unmarshal(text, &dispatch); err != nil {
		w.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"key.txt":      "sk-ant-of-a-test",
		"payload.json": strings.ReplaceAll(string(dispatch.Payload), "T-2026-044", "T-2026-001"),
	} {
		testbed.Write(w.t, filepath.Join(w.dir, name), text)
	}
	return strings.NewReplacer(
		"gate_01…", gates.Gates[0].ID, "gate_02…", gates.Gates[1].ID, "T-2026-044", tasks.Tasks[0].TaskID,
		"rs-amp-…", key, "sbx_op_…", w.p.token(), "--agent probe ", "--agent probe-agent ",
		"http://127.0.0.1:7446", w.p.url, "https://amp.example.com", w.p.url, "https://mail.example.com", w.p.url,
		"https://signalbox.example", w.p.url,
		"--duration 30s", "--duration 300ms", "--duration 60s", "--duration 300ms", "/srv/repo",
		filepath.Join(w.dir, "repo"), "~/",
		w.dir+"/", "./vectors", vectors,
	)
}

// instead is what is run for a line that cannot be run as it is shown: because it leaves
// values open, or because a person would have done something before.
var instead = map[string]string{
	"signalbox up":    "signalbox up --data fresh --listen 127.0.0.1:0",
	"signalbox %s %s": "signalbox keys issue probe-agent",

	"signalbox up --data %s":    "signalbox up --data fresh --listen 127.0.0.1:0",
	"signalbox backup":          backedUp,
	"signalbox backup identity": "signalbox backup identity --out id",
	"signalbox backup keys":     backedUp,
	"signalbox restore":         backedUp + restored,
	"signalbox migrate":         "signalbox migrate --help",
	"signalbox backup --to /mnt/backup --recipient age1…": backedUp,
	"signalbox restore --from /mnt/backup --identity backup-identity.txt --keys keys.age --data ./restored": backedUp +
		restored,
	"signalbox migrate --from sqlite --to postgres --db postgres://signalbox@db.example/signalbox": "signalbox " +
		"migrate --help",

	"signalbox login --cli": "signalbox login --help",
	"signalbox login --cli --server https://signalbox.example.com": "signalbox login --help",

	"signalbox config set server.trusted_proxies %s": "signalbox config set server.trusted_proxies 127.0.0.1",

	"signalbox agents add NAME":                  "signalbox agents add new-agent",
	"signalbox agents set %s --trust trusted":    "signalbox agents set probe-agent --trust trusted",
	"signalbox agents set %s --acts-for %s":      "signalbox agents set probe-agent --acts-for oidc",
	"signalbox agents set NAME --oidc-client ID": "signalbox agents set probe-agent --oidc-client probe",
	"signalbox users add NAME --email ADDRESS":   "signalbox users add eve --email eve@example.com",
	"signalbox users add NAME":                   "signalbox users add ann",
	"signalbox handoffs ls --agent lead-agent":   "signalbox handoffs ls --agent probe-agent",
	"signalbox handoffs ls --user alice --all":   "signalbox users add alice && signalbox handoffs ls --user alice --all",
	`signalbox handoffs end handoff_01… --reason "the task is done"`: "signalbox handoffs end \"$(signalbox handoffs ls " +
		"--json | jq -r '.handoffs[0].id')\" --reason \"the task is done\"",
	"signalbox ledger tail --user alice":           "signalbox users add alice && signalbox ledger tail --user alice",
	"signalbox users key %s":                       "signalbox users add ann && signalbox users key ann",
	"signalbox users set %s --scopes email.read":   "signalbox users add bea && signalbox users set bea --scopes x",
	"signalbox operators token %s":                 "signalbox operators token admin",
	"signalbox operators forget-passkeys %v":       "signalbox operators forget-passkeys admin --data stopped",
	"signalbox operators set %s --slack U024BE7LH": "signalbox operators set admin --slack U024BE7LJ",
	"signalbox operators set NAME --%s CONTACT":    "signalbox operators set admin --telegram 4711",
	"signalbox operators set NAME --email %s":      "signalbox operators set admin --email ann@example.com",
	"signalbox workspaces set default --open-to finance": "signalbox workspaces add finance && signalbox workspaces set " +
		"default --open-to finance",
	"signalbox operators set ann --slack U024BE7LH --telegram 4711": "signalbox operators add ann && signalbox " +
		"operators set ann --slack U024BE7LH --telegram 4711",

	"signalbox gates %v gate_01… gate_02… --note 'The same for both'": "signalbox gates approve gate_01… gate_02… " +
		"--note 'The same for both'",
	"signalbox gates verify gate_01… --export ledger.export": "signalbox ledger export --out ledger.export && " +
		"signalbox gates verify --export ledger.export",
	"signalbox run %s --budget-usd 2 PROMPT": "signalbox run --help",

	"signalbox hook install NAME": "signalbox hook install codex",
	"signalbox hook install %s":   "signalbox hook install codex",
	"signalbox hook install %v":   "signalbox hook install codex",
	"signalbox ledger rebuild":    "signalbox ledger rebuild --data stopped",
	"signalbox policy apply FILE": "signalbox policy show >FILE && signalbox policy apply FILE",
	"signalbox policy apply %s":   "signalbox policy show >same.yaml && signalbox policy apply same.yaml",
	"signalbox policy replay %s":  "signalbox policy init again && signalbox policy replay again/policy.yaml",
	"signalbox policy test %s --policy %s": "signalbox policy init packed && " +
		"signalbox policy test packed/policy_test.yaml --policy packed/policy.yaml",
	"signalbox policy explain 4711": `signalbox policy explain "$(signalbox ledger tail --kind signal.received -n 1 ` +
		`--json | grep -o '"seq":[0-9]*' | head -n 1 | cut -d: -f2)"`,
	"signalbox policy replay --since 168h new-policy.yaml": "signalbox policy show >new-policy.yaml && " +
		"signalbox policy replay --since 168h new-policy.yaml",
	"signalbox notify test slack":               "signalbox notify test --help",
	"signalbox notify secret":                   "signalbox notify secret --help",
	"signalbox config set runs.%s.command PATH": "signalbox config set runs.amp.command bin/amp",

	"signalbox proxy key set anthropic": "signalbox proxy key set anthropic <key.txt",
	"signalbox proxy key set %s":        "signalbox proxy key set openai <key.txt",
	"signalbox proxy agent NAME --provider-key-file FILE": "signalbox proxy agent probe-agent " +
		"--provider-key-file key.txt",
	"signalbox proxy agent coder --soft-reject": "signalbox agents add coder && signalbox proxy " +
		"agent coder --soft-reject",

	"signalbox run %s -- fix the failing test": "signalbox run amp -- fix the failing test",

	"signalbox run claude --cwd /srv/repo --resume " +
		"'`claude --resume 3f0c…`' -- and now the docs": "signalbox run claude " +
		"--cwd /srv/repo --resume '`claude --resume " + runSession + "`' -- and now the docs",

	"signalbox mail register NAME": "signalbox mail register carol",
	"signalbox mail rotate":        mailed + "signalbox mail rotate",
	"signalbox mail status":        mailed + "signalbox mail status",
	"signalbox mail fetch":         mailed + "signalbox mail fetch",
	"signalbox mail inbox --all":   mailed + "signalbox mail inbox --all",
	"signalbox mail read %s":       mailed + readOne,
	"signalbox mail trust %v":      "signalbox mail trust --help",

	"signalbox conform harness \"signalbox harness stdio\" cases.json": "signalbox conform harness " +
		"\"signalbox harness stdio\"",

	"signalbox tasks ack %s": "signalbox tasks ack --help",
	"signalbox tasks work executor --key rs-amp-… -- codex exec -": "signalbox agents set probe-agent " +
		"--label role=executor && " +
		"timeout 3 signalbox tasks work executor --key rs-amp-… -- codex exec - || [ $? = 124 ]",
	"signalbox tasks review T-2026-044 --diff https://git.example.com/app/compare/main...feature": "signalbox " +
		"tasks review --help",
	"signalbox tasks escalate T-2026-044 \"The criteria contradict each other\" " +
		"--severity warning --type conflict": "signalbox tasks escalate --help",
	// There is no such clone here; internal/task/bundle_test.go has some.
	"signalbox tasks verify T-2026-044.bundle --log-key ledger.pub --repo ~/src/shop": "signalbox tasks verify " +
		"T-2026-044.bundle",
	"signalbox tasks instruct T-2026-044 reassign --target executor --agent builder-2": "signalbox agents add builder-2 " +
		"--label role=executor && signalbox tasks instruct T-2026-044 reassign --target executor --agent builder-2",
	"signalbox tasks instruct T-2026-044 override_verdict --decision approved --note \"I looked at it\"": "signalbox " +
		"tasks instruct --help",
}

const (
	// backedUp makes a backup, for an identity of its own, and restored brings it back.
	backedUp = "d=$(mktemp -d ./XXXXXX) && r=$(signalbox backup identity --out $d/i) && " +
		"signalbox backup keys --out $d/k --recipient $r && signalbox backup --to $d/b --recipient $r"
	restored = " && signalbox restore --from $d/b --identity $d/i --keys $d/k --data $d/restored"
	// mailed makes an agent of the folder's own, with a message in its inbox.
	mailed = "{ signalbox mail status >out 2>&1 || signalbox mail register dora; } && signalbox mail send dora Hello " +
		"'To myself' && signalbox mail fetch && "
	// readOne reads the newest message of an inbox.
	readOne = "signalbox mail read $(find . -name 'msg_*' | grep -o 'msg_[0-9a-z_]*' | tail -1)"
)

// lasting are commands that go on until a person ends them with Ctrl-C, and full are those
// that fill a terminal until somebody presses q.
var (
	lasting = regexp.MustCompile(`^signalbox (up( .*)?|demo|mcp|mail bus|harness stdio|ledger tail -f|tasks? work .*)$`)
	full    = regexp.MustCompile(`^signalbox (top|gates watch)$`)
)

// takes is a command's own line of usage, and which values have to follow its name.
var takes = regexp.MustCompile(`(?m)^Usage:\n  (signalbox[a-z -]*[a-z])((?: [^a-z\[\]]\S*)*)`)

// run runs a line as a person would type it, and gives its exit code. A command that is only
// named, without the values that it takes, has to be there.
func (w *world) run(line string) (code int, output string) {
	w.t.Helper()
	limit := 2 * time.Minute
	switch {
	case full.MatchString(line):
		screen := openTerminal(w.t, 100, 30, append(strings.Fields(line)[1:], "--data", w.p.dir)...)
		screen.sees("live")
		screen.types("q")
		screen.ends()
		return 0, ""
	case lasting.MatchString(line):
		limit = 15 * time.Second // some say nothing
		if strings.HasSuffix(line, " demo") {
			limit = testbed.Patience
		}
	default:
		if strings.ContainsAny(line, "&|>") {
			break
		}
		_, help := w.sh(line+" --help", limit)
		if usage := takes.FindStringSubmatch(help); len(usage) == 3 && usage[1] == line && usage[2] != "" {
			return 0, ""
		}
	}
	return w.sh(line, limit)
}

// sh runs a line in the shell, and ends it like Ctrl-C when the limit is over, or when it has
// said something and is one that goes on.
func (w *world) sh(line string, limit time.Duration) (code int, output string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	if strings.ContainsAny(line, "&|>") {
		cmd = exec.CommandContext(ctx, "sh", "-c", line)
	}
	cmd.Dir = w.dir
	cmd.Env = append(cleanEnv(), "HOME="+w.dir, "SIGNALBOX_DATA="+w.p.dir,
		"PATH="+filepath.Join(w.dir, "bin")+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	out := &testbed.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	if lasting.MatchString(line) {
		says := ""
		if strings.HasSuffix(line, " demo") {
			says = "The agents go on"
		}
		testbed.Until(w.t, line+" to go on", func() bool {
			select {
			case <-done:
				return true
			default:
				return ctx.Err() != nil || out.String() != "" && strings.Contains(out.String(), says)
			}
		}, out)
		cancel()
	}
	<-done
	return cmd.ProcessState.ExitCode(), out.String()
}

func TestEveryCommandThatWeShowWorks(t *testing.T) {
	t.Parallel()
	seed := up(t, t.TempDir())
	mustRun(t, seed.dir, "demo", "--once")
	if code := seed.stop(); code != 0 {
		t.Fatalf("the server ended with %d: %s", code, seed.log)
	}
	var documents []string
	byDocument := map[string][]string{}
	for _, s := range everyCommand(t) {
		if byDocument[s.where] == nil {
			documents = append(documents, s.where)
		}
		byDocument[s.where] = append(byDocument[s.where], s.line)
	}
	for line := range instead {
		if !slices.ContainsFunc(everyCommand(t), func(s shown) bool { return s.line == line }) {
			t.Errorf("%s is shown nowhere any more", line)
		}
	}
	for _, document := range documents {
		testbed.Parallel(t, document, func(t *testing.T) {
			w := newWorld(t, seed.dir)
			for _, line := range byDocument[document] {
				runs := w.values.Replace(cmp.Or(instead[line], line))
				if strings.HasPrefix(runs, "signalbox bench ") && !strings.Contains(runs, "--duration") {
					runs += " --duration 300ms"
				}
				if code, out := w.run(runs); code != 0 {
					t.Errorf("%s\nrun as %s\nexit code %d: %s", line, runs, code, out)
				}
			}
		})
	}
}
