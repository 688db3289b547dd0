package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"signalbox/internal/run/engine"
	"signalbox/internal/testbed"
)

func find(t *testing.T, name string) *engine.Engine {
	t.Helper()
	e, err := engine.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestGeminiIsHeldByFilesOfRoot where there can be some: others it leaves out, and would do everything unasked.
func TestGeminiIsHeldByFilesOfRoot(t *testing.T) {
	e := find(t, "gemini")
	folder := e.Folder(engine.Supervised)
	err := e.May(engine.Job{Mode: engine.Supervised})
	if err != nil || os.Geteuid() != 0 && folder != "" {
		t.Fatalf("%q: %v", folder, err)
	}
	for at := folder; at != "" && at != "/"; at = filepath.Dir(at) {
		if info, err := os.Lstat(at); err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v %v", at, info, err)
		}
	}
	if folder := e.Folder(engine.Edit); folder != "" {
		t.Errorf("a run of another mode is in %s", folder)
	}
	if os.Geteuid() != 0 {
		return
	}
	mine := t.TempDir()
	if err := os.Chmod(mine, 0o777); err != nil { //nolint:gosec // others may change it
		t.Fatal(err)
	}
	for folder, may := range map[string]bool{"/": true, mine: false} {
		t.Setenv("TMPDIR", folder)
		if got := e.Folder(engine.Supervised); (got == folder) != may {
			t.Errorf("with %s it is %s", folder, got)
		}
	}
}

// TestCodexIsRefusedWhereItsSandboxDoesNotWork: it would end well with nothing done.
func TestCodexIsRefusedWhereItsSandboxDoesNotWork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere its sandbox is the system's")
	}
	dir := t.TempDir()
	t.Setenv("CODEX_HOME", filepath.Join(dir, "home")) // in the folder of temporary files
	t.Setenv("TMPDIR", dir)
	program := filepath.Join(dir, "codex")
	for _, c := range []struct {
		script string
		mode   engine.Mode
		says   string
	}{
		{"echo warning >&2; echo 'bwrap: no such helper' >&2; exit 1", engine.Edit, "(bwrap: no such helper); its folder " + dir},
		{"echo 'bwrap: no such helper' >&2; exit 1", engine.Read, "bwrap: no such helper"},
		{"exit 1", engine.Full, ""},
		{"exit 1", engine.Supervised, ""},
		{"exit 2", engine.Edit, ""},
		{`[ "$1 $4 $5" = "sandbox -- true" ] && exec true; exit 1`, engine.Edit, ""},
	} {
		testbed.Script(t, program, c.script+"\n")
		err := find(t, "codex").May(engine.Job{Mode: c.mode, Dir: dir, Settings: engine.Settings{Command: program}})
		if c.says == "" && err != nil || c.says != "" && !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestOpencodeIsRefusedWhereAPluginWouldBeRun that nobody has reviewed: opencode loads it whatever it is told. The
// person's own are fine.
func TestOpencodeIsRefusedWhereAPluginWouldBeRun(t *testing.T) {
	for _, c := range []struct {
		file, text string
		refused    bool
	}{
		{"home/shop/.opencode/plugin/own.js", "", true},
		{"home/shop/.opencode/plugins/own.ts", "", true},
		{"home/.opencode/plugin/own.js", "", false},
		{"home/opencode.json", `{"plugin": ["x"]}`, false},
		{".opencode/plugin/own.js", "", true}, // above
		{"home/shop/opencode.json", `{"plugin": ["./own.js"]}`, true},
		{"home/shop/opencode.jsonc", `{"plugins": ["./own.js"]}`, true},
		{"home/shop/.opencode/opencode.json", `{"\u0070lugin": ["./own.js"]}`, true},
		{"home/shop/opencode.json", `{"model": "anthropic/claude-sonnet-4-5"}`, false},
		{"home/shop/.opencode/command/own.md", "Say so.", false},
		{"home/shop/.opencode", "a file", false},
		{"linked/.opencode/plugin/own.js", "", true},
	} {
		root := t.TempDir()
		t.Setenv("HOME", filepath.Join(root, "home"))
		testbed.Folder(t, filepath.Join(root, "home", "shop"))
		testbed.Write(t, filepath.Join(root, c.file), c.text)
		dir := filepath.Join(root, "home", "shop")
		if strings.HasPrefix(c.file, "linked") {
			dir = filepath.Join(dir, "link")
			if err := os.Symlink(filepath.Join(root, "linked"), dir); err != nil {
				t.Fatal(err)
			}
		}
		e := find(t, "opencode")
		if err := e.May(engine.Job{Mode: engine.Supervised, Dir: dir}); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
		if err := e.May(engine.Job{Mode: engine.Edit, Dir: dir}); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestOpencodeAsksBeforeAChange of each file, since it follows links that lead out of the folder: a patch names several.
func TestOpencodeAsksBeforeAChange(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		testbed.Missing(t, "node is not installed: %v", err)
	}
	dir := t.TempDir()
	program := testbed.Script(t, filepath.Join(dir, "signal box"), `call=$(cat)
echo "$call" >>"$0.asked"
case $call in
*out* | "{}") echo no >&2; exit 2 ;;
esac
echo '{"hookSpecificOutput":{"permissionDecision":"allow"}}'
`)
	held, err := find(t, "opencode").Permit(engine.Permit{
		Mode: engine.Edit, Job: engine.Job{Dir: dir}, Dir: dir, Program: program,
	})
	if err != nil || !strings.Contains(strings.Join(held.Env, "\n"), "signalbox-opencode.mjs") {
		t.Fatalf("%+v %v", held, err)
	}
	for _, c := range []struct {
		tool, args string
		asks       int
		done       bool
	}{
		{"read", `{"filePath": "out"}`, 0, true},
		{"write", `{"filePath": "page"}`, 1, true},
		{"write", `{"filePath": "link/out"}`, 1, false},
		{"edit", `{"filePath": "out"}`, 1, false},
		{"bash", `{"command": "ls"}`, 1, true}, // which its rules deny
		{"apply_patch", `{"patchText": "*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n*** End Patch"}`, 2, true},
		{"apply_patch", `{"patchText": "*** Begin Patch\n*** Update File: a\n*** Move to: out\n*** End Patch"}`, 2, false},
		{"apply_patch", `{"patchText": "no files"}`, 1, false},
	} {
		_ = os.Remove(program + ".asked")
		run := `const plugin = await import("file://` + dir + `/signalbox-opencode.mjs");
const hooks = await plugin.Signalbox({directory: "/"});
await hooks["tool.execute.before"]({tool: "` + c.tool + `"}, {args: ` + c.args + `});`
		out, err := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", run).CombinedOutput()
		asked, _ := os.ReadFile(program + ".asked")
		if asks := strings.Count(string(asked), "\n"); (err == nil) != c.done || asks != c.asks {
			t.Errorf("%+v: asked %d times, %v %s", c, asks, err, out)
		}
	}
}
