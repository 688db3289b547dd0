package server

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"signalbox/internal/task/amp"
)

// watchEvery is how often the repositories of tasks that are under way are read, to notice what no message tells.
const watchEvery = 30 * time.Second

// maxLockAt is an upper bound against typing mistakes.
const maxLockAt = 100

// setLockAt reads the number of rejections in a row after which a task is locked.
func setLockAt(c *Config, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxLockAt {
		return fmt.Errorf("should be a whole number from 1 to %d", maxLockAt)
	}
	c.LockAt = n
	return nil
}

// setRepoRoots reads the folders below which git may be run. Only absolute paths: the
// server must not run git in a place that depends on where it was started.
func setRepoRoots(c *Config, v string) error {
	c.RepoRoots = splitList(v)
	for _, root := range c.RepoRoots {
		if !filepath.IsAbs(root) {
			return fmt.Errorf("should be absolute paths, such as /srv/repos, with commas between")
		}
	}
	return nil
}

// setTaskMirror reads the folder of the mirror, or "" for none.
func setTaskMirror(c *Config, v string) error {
	if v != "" && !filepath.IsAbs(v) {
		return fmt.Errorf("should be an absolute path, such as /srv/tasks")
	}
	c.TaskMirror = v
	return nil
}

// tasks are the rules of tasks: what the configuration sets, and the protocol's defaults for the rest. Tasks of high
// risk always need a person's confirmation; that cannot be configured.
func (c *Config) tasks() amp.Policy {
	p := amp.Defaults()
	p.RequirePlan, p.LockAt, p.ConfirmHigh = c.PlanApproval, c.LockAt, true
	return p
}
