package engine

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Unasked begins the error of a supervised run that was stopped because its agent has done something that
// nobody was asked about (RUN-45), and Exceeded that of one whose agent did what its mode does not allow (RUN-52).
const (
	Unasked  = "the agent acted without a decision"
	Exceeded = "the agent did what its mode does not allow"
)

// GuardTime is how long these CLIs wait for a hook. It is longer than a person takes to
// decide, because a hook that times out does not block in Claude Code.
const GuardTime = 7 * 24 * time.Hour

// orDeny makes every failure of a hook the exit code that CLIs take for a denial (RUN-42).
const orDeny = " || exit 2"

// orSayNo is the same for gemini, which takes an exit code without a text for a permission.
const orSayNo = " || { echo 'Signalbox cannot be asked, so this is refused.' >&2; exit 2; }"

// ampPermit writes amp's settings. The person's own may say true, which would skip the rules. In a supervised run
// Signalbox is amp's permission delegate: a program without arguments, so a script carries them. Exit code 0 allows and
// 2 rejects; any other would ask a person at the terminal, so the script turns it into 2 (RUN-42).
func ampPermit(p Permit) (Permission, error) {
	rule := func(tool, action string) map[string]string { return map[string]string{"tool": tool, "action": action} }
	delegate := func(tool, command string) (map[string]string, error) {
		to, err := p.write("signalbox-permit", "#!/bin/sh\n"+command+"\n[ $? -eq 0 ] || exit 2\n", 0o700)
		return map[string]string{"tool": tool, "action": "delegate", "to": to}, err
	}
	var rules []map[string]string
	switch p.Mode {
	case Supervised:
		all, err := delegate("*", p.hook("amp")+` "$@"`)
		if err != nil {
			return Permission{}, err
		}
		rules = append(rules, all)
	case Read, Edit:
		for _, tool := range []string{"Read", "Grep", "glob", "Glob", "finder", "view_media", "todo_read", "todo_write"} {
			rules = append(rules, rule(tool, "allow"))
		}
		if p.Mode == Edit {
			for _, tool := range []string{"edit_file", "create_file"} {
				one, err := delegate(tool, p.permitChange())
				if err != nil {
					return Permission{}, err
				}
				rules = append(rules, one)
			}
		}
		rules = append(rules, rule("*", "reject"))
	default:
		return Permission{Args: []string{"--dangerously-allow-all"}}, nil
	}
	text, err := wire.Marshal(map[string]any{"amp.permissions": rules, "amp.dangerouslyAllowAll": false})
	if err != nil {
		return Permission{}, err
	}
	settings, err := p.write("amp-settings.json", string(text), 0o600)
	return Permission{Args: []string{"--settings-file", settings}}, err
}

// claudePermit takes away the tools that a mode does not have, and the servers of MCP. In a supervised run a hook is put
// before every tool. Exit code 2 is the only one that blocks, so every failure of the hook is turned into it (RUN-42).
// onFailure is for a hook that cannot be started.
func claudePermit(p Permit) (Permission, error) {
	only := func(permissions, tools string) Permission {
		return Permission{Args: []string{"--permission-mode", permissions, "--strict-mcp-config", "--tools", tools}}
	}
	switch p.Mode {
	case Read:
		return only("default", "Read,Grep,Glob,TodoWrite"), nil
	case Edit:
		return only("acceptEdits", "Read,Grep,Glob,TodoWrite,Edit,Write,NotebookEdit"), nil
	case Full:
		return Permission{Args: []string{"--dangerously-skip-permissions"}}, nil
	}
	text, err := wire.Marshal(map[string]any{"hooks": map[string]any{"PreToolUse": []any{map[string]any{
		"matcher": "*",
		"hooks": []any{map[string]any{
			"type": "command", "command": p.hook("claude-code") + orDeny,
			"timeout": int(GuardTime.Seconds()), "onFailure": "block",
		}},
	}}}})
	return Permission{Args: []string{"--settings", string(text)}}, err
}

// claudeCannot: Claude Code refuses its flag for that to root.
func claudeCannot(j Job) string {
	if j.Mode == Full && !j.Sandboxed && os.Geteuid() == 0 && os.Getenv("IS_SANDBOX") == "" {
		return "Claude Code does not let root do everything. Run it with --sandbox, as another user, or in a sandbox of yours that sets IS_SANDBOX=1"
	}
	return ""
}

// codexPermit has codex confine what its model does, which reads and changes files by commands. In a supervised run its
// hooks are asked instead, and none but ours: those of the folder have been reviewed by nobody, so the folder and all
// above it are not trusted. Tried with 0.166.0.
func codexPermit(p Permit) (Permission, error) {
	set := []string{"--dangerously-bypass-approvals-and-sandbox"}
	switch {
	case p.Job.Sandboxed && (p.Mode == Read || p.Mode == Edit): // ours does it, and holds no second one
	case p.Mode == Read:
		set = []string{"--sandbox", "read-only"}
	case p.Mode == Edit:
		set = []string{"--sandbox", "workspace-write"}
		for _, one := range []string{
			"network_access=false", "writable_roots=[]", "exclude_slash_tmp=true", "exclude_tmpdir_env_var=true",
		} {
			set = append(set, "-c", "sandbox_workspace_write."+one)
		}
	case p.Mode == Full:
		return Permission{Args: set}, nil
	default:
		var folders []string
		for at := p.Job.Dir; ; at = filepath.Dir(at) {
			folders = append(folders, strconv.Quote(at)+`={trust_level="untrusted"}`)
			if at == filepath.Dir(at) {
				break
			}
		}
		within := int(GuardTime.Seconds())
		return Permission{Args: []string{
			"--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust",
			"-c", "projects={" + strings.Join(folders, ",") + "}",
			"-c", "hooks.PreToolUse=[{hooks=[{type=\"command\",command=" +
				strconv.Quote(fmt.Sprintf("timeout -s KILL %d %s%s", within-10, p.hook("codex"), orDeny)) +
				",timeout=" + strconv.Itoa(within) + "}]}]",
		}}, nil
	}
	return Permission{Args: append(set, "-c", `web_search="disabled"`)}, nil
}

// geminiRead and geminiChange are tools of gemini.
const (
	geminiRead = `"read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content", "write_todos", ` +
		`"update_topic"`
	geminiChange = `"write_file", "replace"`
)

// geminiPermit writes policies, which come before those of the person and of the folder. In a supervised run gemini asks
// nobody but our hook. Of root it is in the settings of the system: those come before all others, and its name is another
// one each time, so that no settings of the folder can switch it off.
func geminiPermit(p Permit) (Permission, error) {
	switch p.Mode {
	case Full:
		return Permission{Args: []string{"--approval-mode", "yolo"}}, nil
	case Supervised:
		within := int(GuardTime.Seconds())
		hooks := map[string]any{"BeforeTool": []any{map[string]any{
			"matcher": "*",
			"hooks": []any{map[string]any{
				"type": "command", "name": "signalbox-" + rand.Text(), "timeout": within * 1000,
				"command": fmt.Sprintf("timeout -s KILL %d %s%s", within-10, p.hook("gemini"), orSayNo),
			}},
		}}}
		if geminiFolder(p.Mode) == "" {
			return geminiAlone(p, hooks)
		}
		text, err := wire.Marshal(map[string]any{"hooksConfig": map[string]any{"enabled": true}, "hooks": hooks})
		if err != nil {
			return Permission{}, err
		}
		settings, err := p.write("gemini-settings.json", string(text), 0o600)
		return Permission{
			Args: []string{"--approval-mode", "yolo"}, Env: []string{"GEMINI_CLI_SYSTEM_SETTINGS_PATH=" + settings},
		}, err
	}
	rule := func(tools, more, decision string, priority int) string {
		return fmt.Sprintf("[[rule]]\ntoolName = %s\n%sdecision = %q\npriority = %d\n\n", tools, more, decision, priority)
	}
	policy, approval := rule("["+geminiRead+"]", "", "allow", 900)+rule(`"*"`, "", "deny", 100), "default"
	if p.Mode == Edit {
		names := make([]string, len(protected))
		for i, name := range protected {
			names[i] = strings.ReplaceAll(name, ".", "[.]")
		}
		policy += rule("["+geminiChange+"]", fmt.Sprintf("argsPattern = '[/\"](%s)[/\"]'\n", strings.Join(names, "|")), "deny", 950) +
			rule("["+geminiChange+"]", "", "allow", 900)
		approval = "auto_edit"
	}
	file, err := p.write("gemini-policy.toml", policy, 0o600)
	return Permission{Args: []string{"--approval-mode", approval, "--admin-policy", file}}, err
}

// geminiFolder is a folder that only root can change, up to the root of the file system, "" if there is none: gemini
// leaves an administrator's settings out, with no more than a warning, if anybody else could have written them. Where
// there is none, a supervised run has a home of its own (geminiAlone). Tried with 0.61.0.
func geminiFolder(m Mode) string {
	if m != Supervised || os.Geteuid() != 0 {
		return ""
	}
	for _, folder := range []string{os.TempDir(), "/run", "/var/lib", "/root"} {
		if resolved, err := filepath.EvalSymlinks(folder); err == nil && onlyRoots(resolved) {
			return resolved
		}
	}
	return ""
}

// onlyRoots reports whether nobody but root can change a folder, or put another in its place.
func onlyRoots(folder string) bool {
	info, err := os.Stat(folder)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != 0 {
		return false
	}
	parent := filepath.Dir(folder)
	return parent == folder || onlyRoots(parent)
}

// geminiCannot: settings and policies of an administrator come before ours, and would be left out by them.
func geminiCannot(j Job) string {
	m := j.Mode
	const settings, policies = "/etc/gemini-cli/settings.json", "/etc/gemini-cli/policies/*.toml"
	if found, _ := filepath.Glob(policies); len(found) > 0 &&
		(m == Read || m == Edit || m == Supervised && geminiFolder(m) == "") {
		return "this machine has policies for gemini of its own (" + policies + "), which would stand in place of those of the mode"
	}
	if _, err := os.Stat(settings); (err == nil || os.Getenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH") != "") && m == Supervised {
		return "this machine has settings for gemini of its own (" + settings + ", GEMINI_CLI_SYSTEM_SETTINGS_PATH), which a " +
			"supervised run would have to leave out"
	}
	return ""
}

// opencodePermit gives opencode an agent that may do no more, whose rules are the last that count. In a supervised run a
// plugin asks before each tool, and what the folder sets up is left out: nobody has reviewed it. Where it edits, a plugin
// asks too, since opencode does not resolve links.
func opencodePermit(p Permit) (Permission, error) {
	var config map[string]any
	var args, env []string
	switch p.Mode {
	case Full:
		return Permission{Args: []string{"--auto"}}, nil
	case Supervised:
		plugin, err := p.write("signalbox-opencode.mjs", asking(p.hook("opencode"))+opencodeGuard, 0o600)
		if err != nil {
			return Permission{}, err
		}
		config = map[string]any{"plugin": []string{"file://" + plugin}}
		args, env = []string{"--auto"}, []string{"OPENCODE_DISABLE_PROJECT_CONFIG=1", withPlugins}
	default:
		agent := or(p.Job.Settings.Mode, "signalbox")
		config = map[string]any{"agent": map[string]any{agent: map[string]any{
			"mode": "primary", "permission": opencodeRules(p.Mode),
		}}}
		args = []string{"--agent", agent}
		if p.Mode == Edit {
			plugin, err := p.write("signalbox-opencode.mjs", asking(p.permitChange())+opencodeEdits, 0o600)
			if err != nil {
				return Permission{}, err
			}
			config["plugin"], env = []string{"file://" + plugin}, []string{withPlugins}
		}
	}
	text, err := wire.Marshal(config)
	return Permission{Args: args, Env: append(env, "OPENCODE_CONFIG_CONTENT="+string(text))}, err
}

// withPlugins takes back the variable by which opencode would leave out all plugins, and ours with them.
const withPlugins = "OPENCODE_PURE=0"

// opencodeRules are the permissions of a mode. The last rule that fits counts, so the order matters.
func opencodeRules(m Mode) wire.Raw {
	rules := `{"*":"deny","external_directory":{"*":"deny"},"bash":"deny","task":"deny","webfetch":"deny","websearch":"deny",` +
		`"read":{"*":"allow","*.env":"deny","*.env.*":"deny","*.env.example":"allow"},"grep":"allow","glob":"allow","list":"allow",` +
		`"lsp":"allow","todowrite":"allow","todoread":"allow","edit":`
	if m == Read {
		return wire.Raw(rules + `"deny"}`)
	}
	var names strings.Builder
	for _, name := range protected {
		fmt.Fprintf(&names, `,%q:"deny",%q:"deny",%q:"deny",%q:"deny"`, name, name+"/*", "*/"+name, "*/"+name+"/*")
	}
	return wire.Raw(rules + `{"*":"allow"` + names.String() + `}}`)
}

// opencodeCannot: the variable can hold one configuration, and plugins of the folder cannot be left out.
func opencodeCannot(j Job) string {
	if j.Mode == Supervised && j.Dir != "" {
		if plugin := opencodePlugin(j.Dir); plugin != "" {
			return plugin + " would be run unasked, whatever opencode is told; move it away, or take another engine"
		}
	}
	if j.Mode != Full && os.Getenv("OPENCODE_CONFIG_CONTENT") != "" {
		return "OPENCODE_CONFIG_CONTENT has a configuration already; put that into a file and its name into OPENCODE_CONFIG"
	}
	return ""
}

// piPermit names the tools that pi may have, and loads no extension but ours, which keeps changes in the folder, or asks
// before each tool.
func piPermit(p Permit) (Permission, error) {
	const reading = "read,grep,find,ls"
	var guard string
	args := []string{"--no-extensions"}
	switch p.Mode {
	case Full:
		return Permission{}, nil
	case Read:
		return Permission{Args: append(args, "--tools", reading)}, nil
	case Edit:
		args = append(args, "--tools", reading+",edit,write")
		guard = asking(p.permitChange()) + piEdits
	default:
		guard = asking(p.hook("pi")) + piAsks
	}
	file, err := p.write("signalbox-pi.mjs", guard, 0o600)
	return Permission{Args: append(args, "--extension", file)}, err
}

// asking begins a plugin: ask runs a command with a call on its standard input, and returns another input for the tool
// if there is one. Anything but a plain permission is thrown, which both CLIs take for a denial.
func asking(command string) string {
	text, _ := wire.Marshal(command) // a text always encodes
	return `import { spawn } from "node:child_process";
const command = ` + string(text) + `;
const ask = (call) => new Promise((allow, deny) => {
  const refuse = (why) => deny(new Error(why || "Signalbox cannot be asked, so this is refused."));
  const child = spawn("/bin/sh", ["-c", command], { stdio: ["pipe", "pipe", "pipe"] });
  let out = "", said = "";
  child.stdout.on("data", (text) => { out += text; });
  child.stderr.on("data", (text) => { said += text; });
  child.stdin.on("error", () => {});
  child.on("error", (error) => refuse(String(error)));
  child.on("close", (code) => {
    let answer;
    try { answer = JSON.parse(out).hookSpecificOutput; } catch { answer = undefined; }
    if (code !== 0 || answer?.permissionDecision !== "allow") return refuse(answer?.permissionDecisionReason || said.trim());
    allow(answer.updatedInput);
  });
  child.stdin.end(JSON.stringify(call));
});
const replace = (input, other) => {
  if (!other) return;
  for (const name of Object.keys(input)) delete input[name];
  Object.assign(input, other);
};
`
}

// The ends of plugins: what calls ask.
const (
	opencodeGuard = `export const Signalbox = async ({ directory }) => ({
  "tool.execute.before": async (call, output) => {
    const other = await ask({ session_id: call.sessionID, hook_event_name: "PreToolUse", cwd: directory, tool_name: call.tool,
      tool_input: output.args ?? {}, tool_use_id: call.callID });
    replace(output.args ?? {}, other);
  },
});
`
	// A patch names its files in its text. What is not known to read alone is taken for a change.
	opencodeEdits = `const reads = ["read", "grep", "glob", "list", "lsp", "todowrite", "todoread", "invalid"];
export const Signalbox = async () => ({
  "tool.execute.before": async (call, output) => {
    const input = output.args ?? {};
    if (reads.includes(call.tool)) return;
    if (input.patchText === undefined) return void await ask(input);
    const files = /^\s*[*]{3}\s*(?:Add File|Update File|Delete File|Move to)\s*:(.*)$/gm;
    const paths = [...String(input.patchText).matchAll(files)].map((match) => ({ path: match[1].trim() }));
    for (const change of paths.length ? paths : [{}]) await ask(change);
  },
});
`
	piAsks = `export default function (pi) {
  pi.on("tool_call", async (event, context) => {
    const other = await ask({ session_id: context.sessionManager.getSessionId(), hook_event_name: "PreToolUse", cwd: context.cwd,
      tool_name: event.toolName, tool_input: event.input ?? {}, tool_use_id: event.toolCallId });
    replace(event.input ?? {}, other);
  });
}
`
	piEdits = `export default function (pi) {
  pi.on("tool_call", async (event) => {
    if (event.toolName === "edit" || event.toolName === "write") await ask(event.input ?? {});
  });
}
`
)

// cannotWrite explains that the guard could not be written. The run does not start
// then.
func cannotWrite(err error, path string) error {
	return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s, by which the run would be held to its mode.", path)
}

// quote is a word as a POSIX shell reads it back.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
