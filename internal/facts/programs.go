package facts

import "strings"

// handling is what a program does with its operands.
type handling struct {
	all    use    // what it does with each
	last   use    // what it does with the last one, if there are several; mentions: the same
	skip   int    // how many operands come before the files: a mode, a pattern
	values string // flags that have a value in the next word, which is no operand
	hosts  bool   // operands are addresses
}

// programs is what common programs do with their operands. Of a program that is not here it is
// known only which files it names.
var programs = map[string]handling{
	"rm":        {all: deletes},
	"rmdir":     {all: deletes},
	"unlink":    {all: deletes},
	"shred":     {all: deletes, values: "-n -s"},
	"srm":       {all: deletes},
	"wipe":      {all: deletes},
	"trash":     {all: deletes},
	"trash-put": {all: deletes},
	"gio":       {all: deletes, skip: 1},
	"del":       {all: deletes},
	"rd":        {all: deletes},

	"mv": {all: deletes, last: writes, values: "-t -S --target-directory"},

	"cp": {
		all:    reads,
		last:   writes,
		values: "-t -S --target-directory",
	},
	"ln":      {all: reads, last: writes, values: "-t -S"},
	"install": {all: reads, last: writes, values: "-m -o -g -t"},
	"ditto":   {all: reads, last: writes},
	"rsync":   {all: reads, last: writes, values: "-e --rsh --exclude --include --rsync-path"},
	"scp":     {all: reads, last: writes, values: "-i -P -o -F -c -l -J"},

	"touch":      {all: writes, values: "-d -r -t --date --reference"},
	"mkdir":      {all: writes, values: "-m --mode"},
	"tee":        {all: writes},
	"truncate":   {all: writes, values: "-s -r --size --reference"},
	"sponge":     {all: writes},
	"chmod":      {all: writes, skip: 1},
	"chown":      {all: writes, skip: 1},
	"chgrp":      {all: writes, skip: 1},
	"chattr":     {all: writes, skip: 1},
	"setfacl":    {all: writes, values: "-m -x -M -X"},
	"mkfifo":     {all: writes},
	"mknod":      {all: writes},
	"mkfs":       {all: writes, values: "-t -L"},
	"wipefs":     {all: writes},
	"fdisk":      {all: writes},
	"parted":     {all: writes},
	"sgdisk":     {all: writes},
	"mkswap":     {all: writes},
	"blkdiscard": {all: writes},
	"cryptsetup": {all: writes, skip: 1},
	"hdparm":     {all: writes},
	"diskutil":   {all: writes, skip: 1},
	"nano":       {all: writes},
	"vim":        {all: writes, values: "-c"},
	"vi":         {all: writes, values: "-c"},
	"ed":         {all: writes},
	"split":      {all: reads, last: writes, values: "-l -b -n -a"},

	"cat":  {all: reads},
	"less": {all: reads},
	"more": {all: reads},
	"head": {all: reads, values: "-n -c"},
	"tail": {all: reads, values: "-n -c"},
	"bat":  {all: reads},
	"nl":   {all: reads},
	"tac":  {all: reads},
	"wc": {
		all: reads,
	},
	"sort":      {all: reads, values: "-k -t -S -T"},
	"uniq":      {all: reads},
	"cut":       {all: reads, values: "-d -f -c"},
	"diff":      {all: reads},
	"cmp":       {all: reads},
	"file":      {all: reads},
	"stat":      {all: reads, values: "-c -f"},
	"strings":   {all: reads},
	"xxd":       {all: reads},
	"hexdump":   {all: reads},
	"od":        {all: reads},
	"base64":    {all: reads},
	"md5sum":    {all: reads},
	"sha1sum":   {all: reads},
	"sha256sum": {all: reads},
	"ls":        {all: reads},
	"tree":      {all: reads},
	"du":        {all: reads},
	"open":      {all: reads},
	"gpg":       {all: reads},
	"age":       {all: reads, values: "-r -o"},
	"grep":      {all: reads, skip: 1, values: "-A -B -C -m --include --exclude"},
	"egrep":     {all: reads, skip: 1},
	"rg": {
		all:    reads,
		skip:   1,
		values: "-A -B -C -g -t -m",
	},
	"sed": {all: reads, skip: 1},
	"awk": {all: reads, skip: 1, values: "-F -v"},
	"jq":  {all: reads, skip: 1},
	"yq":  {all: reads, skip: 1},

	"curl": {
		hosts: true,
		values: "-o -O -H -d -X -u -F -T -e -A -b -c -m -w -x -K -E --output --header --data --request --user --form " +
			"--upload-file --data-raw --data-binary --data-urlencode --max-time --retry --connect-timeout --proxy --cacert " +
			"--cert --key --resolve --user-agent --referer --cookie --cookie-jar --write-out --config --json --url-query",
	},
	"wget": {
		hosts:  true,
		values: "-O -P -o -a -U -T -t --output-document --directory-prefix --header --post-data --post-file",
	},
	"http":     {hosts: true},
	"https":    {hosts: true},
	"fetch":    {hosts: true},
	"aria2c":   {hosts: true, values: "-d -o"},
	"nc":       {hosts: true, values: "-p -s -w -e -c"},
	"ncat":     {hosts: true, values: "-p -e -c"},
	"telnet":   {hosts: true},
	"ping":     {hosts: true, values: "-c -i -W -s"},
	"dig":      {hosts: true},
	"nslookup": {hosts: true},
	"host":     {hosts: true},
	"ftp": {
		hosts: true,
	},
	"sftp":       {hosts: true, values: "-i -P -o"},
	"traceroute": {hosts: true},
	"nmap":       {hosts: true, values: "-p"},
	"mosh":       {hosts: true},
	"lftp":       {hosts: true, values: "-e -u -p"},
}

// operands notes what a program does with its operands.
func (s *shell) operands(c *Command) {
	how, known := programs[c.Name]
	if strings.HasPrefix(c.Name, "mkfs.") {
		how, known = programs["mkfs"], true
	}
	files := operandsOf(c, how)
	s.special(c, how)
	switch {
	case how.hosts:
		for _, address := range files {
			s.f.addHost(hostOf(address, true))
			if c.Name == "nc" || c.Name == "telnet" || c.Name == "ncat" {
				break // the next is a port
			}
		}
		return
	case !known:
		for _, arg := range c.Args {
			if _, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
				arg = value
			}
			if looksLikePath(arg) {
				s.f.add(mentions, s.base.Abs(arg))
			}
		}
		return
	}
	if len(files) > how.skip {
		files = files[how.skip:]
	} else if how.skip > 0 {
		return
	}
	for i, name := range files {
		u := how.all
		if how.last != mentions && i == len(files)-1 && len(files) > 1 {
			u = how.last
		}
		if host := remoteHost(c.Name, name); host != "" {
			s.f.addHost(host)
			continue
		}
		if name != "-" {
			s.f.add(u, s.base.Abs(name))
		}
	}
}

// operandsOf are the arguments that are neither flags nor their values.
func operandsOf(c *Command, how handling) []string {
	files := make([]string, 0, len(c.Args))
	rest := false
	for i := 0; i < len(c.Args); i++ {
		arg := c.Args[i]
		switch {
		case rest || arg == "" || arg == "-" || arg[0] != '-':
			files = append(files, arg)
		case arg == "--":
			rest = true
		case isOneOf(how.values, arg):
			i++
		}
	}
	return files
}

// isOneOf reports whether a word is one of those that stand in a text, separated by spaces.
func isOneOf(words, word string) bool {
	for one := range strings.FieldsSeq(words) {
		if one == word {
			return true
		}
	}
	return false
}

// special notes what the flags of some programs do with files.
func (s *shell) special(c *Command, how handling) {
	for i, arg := range c.Args {
		name, value, inline := strings.Cut(arg, "=")
		if !inline && i+1 < len(c.Args) {
			value = c.Args[i+1]
		}
		switch c.Name {
		case "dd":
			switch name {
			case "of":
				s.f.add(writes, s.base.Abs(value))
			case "if":
				s.f.add(reads, s.base.Abs(value))
			}
		case "cp", "mv", "install", "ln":
			if name == "-t" || name == "--target-directory" {
				s.f.add(writes, s.base.Abs(value))
			}
		case "curl", "wget":
			s.transfer(c.Name, name, value)
		case "sort", "age":
			if name == "-o" || name == "--output" {
				s.f.add(writes, s.base.Abs(value))
			}
		case "tar", "unzip", "bsdtar", "7z":
			s.archive(c, name, value)
		case "sed", "perl", "gawk":
			if i == 0 && c.has("-i", "--in-place") {
				for _, file := range operandsOf(c, how)[min(1, len(operandsOf(c, how))):] {
					s.f.add(writes, s.base.Abs(file))
				}
			}
		case "rsync":
			if strings.HasPrefix(name, "--delete") {
				if files := operandsOf(c, how); len(files) > 1 {
					s.f.add(deletes, s.base.Abs(files[len(files)-1]))
				}
			}
		}
	}
}

// transfer notes the files of curl and wget.
func (s *shell) transfer(program, name, value string) {
	switch {
	case name == "-o" || name == "--output" || (program == "wget" && (name == "-O" || name == "--output-document" ||
		name == "-P" || name == "--directory-prefix")):
		if value != "-" {
			path := s.base.Abs(value)
			s.f.add(writes, path)
			s.setFile(path, file{download: true})
		}
	case strings.HasPrefix(name, "-o") && len(name) > 2 && program == "curl":
		path := s.base.Abs(name[2:])
		s.f.add(writes, path)
		s.setFile(path, file{download: true})
	case name == "-T" || name == "--upload-file" || name == "--post-file":
		s.f.add(reads, s.base.Abs(value))
	case strings.HasPrefix(name, "-d") || strings.HasPrefix(name, "--data") || name == "-F" || name == "--form":
		if _, path, ok := strings.Cut(value, "@"); ok && (value[0] == '@' || strings.Contains(value, "=@")) {
			path, _, _ = strings.Cut(path, ";")
			s.f.add(reads, s.base.Abs(path))
		}
	}
}

// archive notes where an archive is unpacked.
func (s *shell) archive(c *Command, name, value string) {
	unpacks := c.Name == "unzip" || c.has("-x", "--extract", "--get") ||
		(len(c.Args) > 0 && c.Args[0] != "" && c.Args[0][0] != '-' && strings.ContainsRune(c.Args[0], 'x'))
	switch {
	case name == "--checkpoint-action" || name == "--to-command" || name == "--use-compress-program":
		s.f.blur(Eval) // it runs a program
	case !unpacks && looksLikePath(name):
		s.f.add(reads, s.base.Abs(name))
	case (name == "-C" || name == "-d" || name == "--directory") && unpacks:
		s.f.add(writes, s.base.Abs(value))
	case name == "-P" && unpacks:
		s.f.add(writes, "/") // it keeps absolute names
	}
}

// remoteHost is the host of an operand of scp or rsync that is on another machine.
func remoteHost(program, operand string) string {
	if program != "scp" && program != "rsync" && program != "sftp" {
		return ""
	}
	if strings.Contains(operand, "://") {
		return hostOf(operand, false)
	}
	before, _, ok := strings.Cut(operand, ":")
	if !ok || strings.Contains(before, "/") {
		return ""
	}
	return hostOf(before, true)
}

// looksLikePath reports whether an argument of a program that is not known names a file.
func looksLikePath(arg string) bool {
	if strings.Contains(arg, "://") || len(arg) > 4096 || strings.ContainsAny(arg, "\n\t") {
		return false
	}
	return strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || arg == ".." ||
		strings.HasPrefix(
			arg,
			"~",
		) || (strings.Contains(arg, "/") && !strings.Contains(arg, " ")) || strings.HasPrefix(arg, ".git")
}
