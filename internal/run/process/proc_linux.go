package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ownGroup puts the CLI into a group of its own, and ends it when we are killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

const prSetChildSubreaper = 36

// adoptOrphans makes us the parent of what our children leave behind, so that we can
// wait for it.
func adoptOrphans() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
}

func reap(pid int) { _, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) }

// proc is a process of this machine.
type proc struct {
	pid, group int
	zombie     bool
}

// processes lists them.
func processes() (all []proc) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name may hold anything, so what is after its end counts: state, parent, group.
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(fields) < 3 {
			continue
		}
		group, _ := strconv.Atoi(fields[2])
		all = append(all, proc{pid: pid, group: group, zombie: fields[0] == "Z"})
	}
	return all
}

func environ(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return string(text)
}
