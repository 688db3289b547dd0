package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"signalbox/internal/fault"
)

// bubblewrap is the program that builds the walls.
const bubblewrap = "bwrap"

// walls are the arguments that every box has. It has a namespace of users of its own where there can be one; without,
// real root builds it all the same.
var walls = []string{
	"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent",
	"--new-session", "--cap-drop", "ALL",
}

// ownUsers is the argument for a namespace of users of its own.
const ownUsers = "--unshare-user"

// checkTime is how long a try may take on a busy machine.
const checkTime = 30 * time.Second

// Check says why this machine has no sandbox for this user, and what to do about it, nil if it has one.
func Check(ctx context.Context) error {
	_, err := build(ctx)
	return err
}

// build finds out how a box is built here: the program, and the arguments with which it works.
func build(ctx context.Context) (start []string, err error) {
	program, err := exec.LookPath(bubblewrap)
	if err != nil {
		return nil, fault.New(fault.InvalidRequest, "A sandbox takes bubblewrap (%s), which is not installed here. Install Debian's "+
			"package with `sudo apt install bubblewrap`, or run without a sandbox.", bubblewrap).About("sandbox")
	}
	tries := [][]string{append([]string{program, ownUsers}, walls...)}
	if os.Geteuid() == 0 {
		tries = append(tries, append([]string{program}, walls...))
	}
	var said string
	for _, start := range tries {
		if said = try(ctx, start); said == "" {
			return start, nil
		}
	}
	return nil, fault.New(fault.InvalidRequest, "A sandbox cannot be built here: bubblewrap says %q. %s", said, why()).About("sandbox")
}

// try builds a box and says what went wrong, "" for nothing.
func try(ctx context.Context, start []string) string {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	args := append(append([]string{}, start[1:]...), system()...)
	cmd := exec.CommandContext(ctx, start[0], append(args, "--", "/bin/sh", "-c", ":")...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	if said := strings.TrimSpace(strings.ToValidUTF8(string(out[:min(len(out), 300)]), "\uFFFD")); said != "" {
		return said
	}
	return err.Error()
}

// why is what an administrator may have to set, by what the kernel says.
func why() string {
	for _, one := range []struct{ file, off, setting string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if text, err := os.ReadFile(one.file); err == nil && strings.TrimSpace(string(text)) == one.off {
			return fmt.Sprintf("The kernel gives this user no namespaces: an administrator may change that with `sudo sysctl -w %s`.",
				one.setting)
		}
	}
	return "Programs of this user may need leave for user namespaces (kernel.unprivileged_userns_clone, user.max_user_namespaces, " +
		"kernel.apparmor_restrict_unprivileged_userns), which a container may not give."
}
