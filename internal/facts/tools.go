package facts

import (
	"slices"
	"strings"
)

// source is who has the tools of a table, and in which version they were read.
type source struct {
	name, version string
	tools         map[string]Does
}

// sources is what is known of tools. A name that several of them have means the same in all: a
// test checks that. Names are compared in lower case.
var sources = []source{
	{"Claude Code", "2.1.197", map[string]Does{
		"Bash": Shell, "BashOutput": Other, "KillShell": Other, "Read": Read, "NotebookRead": Read, "Write": Write,
		"Edit": Edit, "MultiEdit": Edit, "NotebookEdit": Edit, "Glob": Search, "Grep": Search, "LS": Search,
		"WebFetch": Fetch, "WebSearch": Fetch, "Task": Agent, "Agent": Agent, "TaskOutput": Other, "TaskStop": Other,
		"SendMessage": Agent, "AskUserQuestion": Ask, "EnterPlanMode": Ask, "ExitPlanMode": Ask, "TodoWrite": Ask,
		"TaskCreate": Ask, "TaskUpdate": Ask, "TaskList": Ask, "TaskGet": Ask, "Skill": Other, "SlashCommand": Other,
		"ToolSearch": Other, "ListMcpResourcesTool": MCP, "ReadMcpResourceTool": MCP, "Monitor": Shell,
	}},
	{"Codex", "0.144.0, exec 0.166.0", map[string]Does{
		"shell": Shell, "shell_command": Shell, "local_shell": Shell, "exec_command": Shell, "container.exec": Shell,
		"unified_exec": Shell, "write_stdin": Shell, "exec": Shell, "apply_patch": Edit, "read_file": Read,
		"list_dir": Search, "grep_files": Search, "view_image": Read, "web_search": Fetch, "update_plan": Ask,
		"request_user_input": Ask, "spawn_agent": Agent, "send_input": Agent, "close_agent": Agent, "wait": Other,
	}},
	{"Gemini CLI", "0.61.0", map[string]Does{
		"run_shell_command": Shell, "read_file": Read, "read_many_files": Read, "write_file": Write, "replace": Edit,
		"list_directory": Search, "glob": Search, "search_file_content": Search, "grep_search": Search, "web_fetch": Fetch,
		"google_web_search": Fetch, "save_memory": Other, "write_todos": Ask, "ask_user": Ask, "enter_plan_mode": Ask,
		"exit_plan_mode": Ask, "activate_skill": Other, "codebase_investigator": Agent, "delegate_to_agent": Agent,
	}},
	{"Amp", "0.0.1790142911", map[string]Does{
		"Bash": Shell, "Read": Read, "create_file": Write, "edit_file": Edit, "undo_edit": Edit, "format_file": Edit,
		"delete_file": Delete, "Grep": Search, "glob": Search, "finder": Agent, "list_directory": Search,
		"read_web_page": Fetch, "web_search": Fetch, "Task": Agent, "oracle": Agent, "librarian": Agent, "handoff": Agent,
		"todo_write": Ask, "todo_read": Ask, "mermaid": Other, "look_at": Read, "read_mcp_resource": MCP,
	}},
	{"opencode", "1.18.0", map[string]Does{
		"bash": Shell, "read": Read, "write": Write, "edit": Edit, "multiedit": Edit, "patch": Edit, "list": Search,
		"glob": Search, "grep": Search, "webfetch": Fetch, "websearch": Fetch, "codesearch": Fetch, "task": Agent,
		"todowrite": Ask, "todoread": Ask, "question": Ask, "skill": Other, "lsp": Search,
	}},
	{"pi", "0.80.0", map[string]Does{
		"bash": Shell, "read": Read, "write": Write, "edit": Edit, "grep": Search, "find": Search, "ls": Search,
	}},
	{"A3S Code", "2.4", map[string]Does{
		"bash": Shell, "read": Read, "write": Write, "edit": Edit, "patch": Edit, "grep": Search, "glob": Search,
		"ls": Search, "web_fetch": Fetch, "web_search": Fetch, "task": Agent,
	}},
	{"Cursor, Copilot CLI, Cline", "2026-10", map[string]Does{
		"run_terminal_cmd": Shell, "run_in_terminal": Shell, "execute_command": Shell, "run_command": Shell,
		"write_to_file": Write, "replace_in_file": Edit, "search_replace": Edit, "str_replace": Edit, "create": Write,
		"view": Read, "codebase_search": Search, "file_search": Search, "list_files": Search, "search_files": Search,
		"fetch_rules": Read, "new_task": Agent, "ask_followup_question": Ask, "attempt_completion": Ask,
		"use_mcp_tool": MCP, "access_mcp_resource": MCP, "browser_action": Fetch, "powershell": Shell,
	}},
	{"tools of Anthropic's and OpenAI's APIs", "2026-10", map[string]Does{
		"bash": Shell, "bash_code_execution": Shell, "code_execution": Shell, "code_interpreter": Shell,
		"str_replace_based_edit_tool": Edit, "str_replace_editor": Edit, "text_editor_code_execution": Edit,
		"memory": Edit, "web_fetch": Fetch, "web_search": Fetch, "web_search_preview": Fetch, "file_search": Search,
		"image_generation": Other, "computer": Other, "computer_use_preview": Other,
	}},
	{"MCP servers: filesystem, fetch, git, playwright, puppeteer, shell", "2026-10", map[string]Does{
		"read_file": Read, "read_text_file": Read, "read_media_file": Read, "read_multiple_files": Read,
		"get_file_info": Read, "write_file": Write, "edit_file": Edit, "create_directory": Write, "move_file": Edit,
		"delete_file": Delete, "delete_directory": Delete, "remove_file": Delete, "list_directory": Search,
		"list_directory_with_sizes": Search, "directory_tree": Search, "search_files": Search,
		"list_allowed_directories": Search, "fetch": Fetch, "browser_navigate": Fetch, "puppeteer_navigate": Fetch,
		"playwright_navigate": Fetch, "execute_command": Shell, "run_command": Shell, "shell_exec": Shell,
		"shell_execute": Shell, "git_status": Search, "git_diff": Search, "git_log": Search,
	}},
}

// toolClasses are the classes of the known tools, by their names in lower case.
var toolClasses = func() map[string]Does {
	all := map[string]Does{}
	for _, s := range sources {
		for name, does := range s.tools {
			all[strings.ToLower(name)] = does
		}
	}
	return all
}()

// Names of arguments, in the order in which they are looked at. They mean the same for every
// tool, known or not, but for those of tools that are special (see arguments.go).
var (
	commandNames = []string{"command", "cmd", "commands", "script", "shell_command", "command_line", "commandline", "argv"}
	shellNames   = append(slices.Clip(commandNames), "chars", "input", "code") // of shell tools only
	pathNames    = []string{
		"file_path", "path", "notebook_path", "absolute_path", "dir_path", "filePath", "filepath", "target_file",
		"file", "filename", "file_name", "directory", "dir", "folder", "paths", "files", "file_paths",
		"relative_workspace_path", "notebookPath", "dirPath", "absolutePath", "targetFile", "target_directory",
		"repo_path", "image_path", "uri",
	}
	fromNames = []string{"source", "old_path", "oldPath", "src", "from_path", "source_path"}
	toNames   = []string{
		"destination",
		"new_path",
		"newPath",
		"dst",
		"dest",
		"to_path",
		"destination_path",
		"target_path",
	}
	cwdNames   = []string{"workdir", "cwd", "working_directory", "workingDirectory", "directory", "dir_path", "dir"}
	urlNames   = []string{"url", "urls", "uri", "endpoint", "href", "link"}
	patchNames = []string{"patch", "patchText", "patch_text", "diff", "input", "command", "patch_content"}
)

// meaning is a set of the lists above.
type meaning int

const (
	isCommand meaning = 1 << iota
	isPath
	isTo
	isFolder
	isURL
	isPatch
)

// meanings are the lists that a name is in.
var meanings = func() map[string]meaning {
	all := map[string]meaning{}
	for list, names := range map[meaning][]string{
		isCommand: shellNames, isPath: pathNames, isTo: toNames, isFolder: cwdNames, isURL: urlNames, isPatch: patchNames,
	} {
		for _, name := range names {
			all[name] |= list
		}
	}
	return all
}()

// classOf is the class of a tool, its name without the server's where it has one, and whether the
// tables have it. The form mcp__SERVER__TOOL is that of Claude Code; others write SERVER__TOOL,
// SERVER.TOOL or SERVER/TOOL.
func classOf(tool, toolset string) (does Does, name string, known bool) {
	name = strings.ToLower(tool)
	if does, known = toolClasses[name]; known {
		return does, name, true
	}
	rest, isMCP := strings.CutPrefix(name, "mcp__")
	if !isMCP {
		rest, isMCP = strings.CutPrefix(name, "mcp_")
	}
	for _, separator := range []string{"__", ".", "/", ":"} {
		if i := strings.LastIndex(rest, separator); i >= 0 {
			isMCP = isMCP || separator == "__"
			rest = rest[i+len(separator):]
			break
		}
	}
	if does, known = toolClasses[rest]; known {
		return does, rest, true
	}
	if isMCP || toolset != "" {
		return MCP, rest, false
	}
	return Other, rest, false
}

// ClassOf is what a tool does as far as its name tells.
func ClassOf(tool string) Does {
	does, _, _ := classOf(tool, "")
	return does
}

// Prose are the arguments of a tool that say in words what it is about to do and change nothing in it,
// such as the description of a shell command. Models write them anew each time.
func Prose(tool string) []string {
	if does, _, known := classOf(tool, ""); known && does == Shell {
		return []string{"description", "justification", "explanation"}
	}
	return nil
}

// useOf guesses from the name of a tool that is not known what it does with a path.
func useOf(name string) use {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == '_' || r == '-' || r == '.' || r == ' ' })
	for _, word := range words {
		switch word {
		case "delete", "remove", "rm", "unlink", "rmdir", "purge", "erase":
			return deletes
		case "write", "create", "edit", "update", "append", "save", "insert", "replace", "patch", "move", "rename", "put",
			"set", "upload", "mkdir", "modify", "apply":
			return writes
		case "read", "get", "list", "view", "open", "search", "find", "show", "cat", "stat":
			return reads
		}
	}
	return mentions
}
