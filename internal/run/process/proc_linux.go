package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ownGroup puts the CLI into a process group of its own, and has the kernel kill it
// when we die (RUN-23).
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// prSetChildSubreaper is PR_SET_CHILD_SUBREAPER, which the syscall package does not
// have.
const prSetChildSubreaper = 36

// adoptOrphans makes us the parent of processes that our children leave behind, so that
// they can be reaped. It holds for the whole process and does no harm when it is called
// again.
func adoptOrphans() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
}

// reap takes the exit status of a dead child, so that it does not stay as a zombie.
func reap(pid int) { _, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) }

// proc is a process of this machine.
type proc struct {
	pid, group int
	zombie     bool
}

// processes lists all processes. Those that end meanwhile are left out.
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

// environ is the environment of a process as the kernel has it: variables that end with
// NUL. It is empty for a process of another user.
func environ(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return string(text)
}
