package sandbox

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// systemFolders have the programs of the machine, and what they need to run.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"}

// settings are what programs read in /etc. Everything else there is outside: passwords, keys, settings of services.
var settings = []string{
	"alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "claude-code", "codex", "crypto-policies",
	"debian_version", "fonts", "gai.conf", "gemini-cli", "gitattributes", "gitconfig", "group", "host.conf", "hostname", "hosts",
	"inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "magic", "mime.types",
	"networks", "nsswitch.conf", "os-release", "passwd", "pki/ca-trust", "pki/tls/certs", "profile", "profile.d", "protocols",
	"python3", "resolv.conf", "services", "shells", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
}

// system are the arguments for a file system with the programs of the machine, and nothing else of it.
func system() (args []string) {
	for _, path := range systemFolders {
		switch info, err := os.Lstat(path); {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(path); err == nil {
				args = append(args, "--symlink", to, path)
			}
		default:
			args = append(args, "--ro-bind", path, path)
		}
	}
	for _, name := range settings {
		path := "/etc/" + name
		if from, err := filepath.EvalSymlinks(path); err == nil {
			args = append(args, "--ro-bind", from, path)
		}
	}
	return append(append(args, "--proc", "/proc", "--dev", "/dev", "--dir", "/run"), kernel()...)
}

// kernel are the arguments that keep the settings of the kernel as they are. Root owns them, and needs no capability to
// write most: the name of a program in kernel.core_pattern is one that the kernel itself would run.
func kernel() (args []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // and nothing is mounted there
	}
	for _, one := range entries {
		info, err := one.Info()
		_, process := strconv.Atoi(one.Name())
		if err == nil && process != nil && (info.IsDir() || info.Mode().IsRegular() && info.Mode().Perm()&0o222 != 0) {
			path := "/proc/" + one.Name()
			args = append(args, "--ro-bind", path, path)
		}
	}
	return args
}

// isSystem reports whether a path is there in every box.
func isSystem(path string) bool {
	return slices.ContainsFunc(systemFolders, func(folder string) bool { return within(path, folder) })
}

// within reports whether a path is a folder or below it. Both are as they were given.
func within(path, folder string) bool {
	return path == folder || folder == "/" || strings.HasPrefix(path, folder+"/")
}

// maxHops is how many links and interpreters lead to a program, at the most.
const maxHops = 20

// programs are the arguments for a program that is not of the machine, such as one that a person has installed in their
// home: itself, the links that lead to it, the packages of Node beside it, and what interprets it.
func programs(path, home string, deep int) (args []string) {
	for ; deep < maxHops; deep++ {
		if isSystem(path) {
			return append(args, interpreter(path, home, deep)...)
		}
		if at := strings.Index(path, "/node_modules/"); at >= 0 {
			if packages := path[:at+len("/node_modules")]; !within(home, packages) {
				return append(append(args, "--ro-bind", packages, packages), interpreter(path, home, deep)...)
			}
		}
		to, err := os.Readlink(path)
		if err != nil {
			// Folders on the way may be links.
			if origin, err := filepath.EvalSymlinks(path); err == nil {
				args = append(args, "--ro-bind", origin, path)
			}
			return append(args, interpreter(path, home, deep)...)
		}
		args = append(args, "--symlink", to, path)
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return args
}

// interpreter are the arguments for the program that a script names in its first line.
func interpreter(script, home string, deep int) []string {
	f, err := os.Open(script)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	first, err := bufio.NewReaderSize(f, 512).ReadSlice('\n')
	text, ok := strings.CutPrefix(string(first), "#!")
	words := strings.Fields(text)
	if err != nil || !ok || len(words) == 0 {
		return nil
	}
	name := words[0]
	if filepath.Base(name) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
		if len(words) == 0 {
			return nil
		}
		name = words[0]
	}
	found, err := exec.LookPath(name)
	if err != nil || !filepath.IsAbs(found) || isSystem(found) {
		return nil
	}
	return programs(found, home, deep+1)
}
