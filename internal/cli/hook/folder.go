package hook

import (
	"os"

	"signalbox/internal/wire"
)

// folderVariable is the folder that a hook was started in, as a variable that Read looks at, and
// projectVariable the one that Claude Code was started in.
const (
	folderVariable  = "PWD"
	projectVariable = "CLAUDE_PROJECT_DIR"
)

// folderArgument is what the folder of a call is named among its arguments, where rules look for
// it. It is the name that the model of Codex knows.
const folderArgument = "workdir"

// environment is os.Getenv for Read. The folder is asked for, since a variable may be of another process.
func environment(name string) string {
	if name != folderVariable {
		return os.Getenv(name)
	}
	folder, err := os.Getwd()
	if err != nil {
		return ""
	}
	return folder
}

// placeCall finds where the agent works, if the CLI tells where the call would run instead: of a shell
// the model chooses that, in Codex with each call, in Claude Code with cd. It is then an argument like
// others, and a rule about the working directory is about the folder that the person chose.
func (c *Call) placeCall(folder, here string) (arguments wire.Raw, workplace string) {
	if folder == "" || here == "" || isSameFolder(folder, here) {
		return c.input, folder
	}
	if c.name != "Bash" {
		if c.tool.place == projectVariable { // its tools for files take absolute paths
			folder = here
		}
		return c.input, folder
	}
	members, err := wire.Members(c.input)
	if err != nil || members[folderArgument] != nil {
		return c.input, here
	}
	members[folderArgument] = wire.AppendText(nil, folder)
	arguments, err = wire.Marshal(members)
	if err != nil {
		return c.input, here
	}
	c.folder = members[folderArgument]
	return arguments, here
}

// withoutFolder are the arguments that a policy wants without the folder that placeCall added. ok is false
// if the policy wants another folder, which the CLI cannot be told.
func (c *Call) withoutFolder(arguments wire.Raw) (own wire.Raw, ok bool) {
	if c.folder == nil {
		return arguments, true
	}
	members, err := wire.Members(arguments)
	if err != nil || !wire.Same(members[folderArgument], c.folder) {
		return nil, false
	}
	delete(members, folderArgument)
	own, err = wire.Marshal(members)
	return own, err == nil
}

// isSameFolder reports whether two names are of one folder, however they lead to it.
func isSameFolder(a, b string) bool {
	if a == b {
		return true
	}
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
