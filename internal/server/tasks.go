package server

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"signalbox/internal/task/amp"
)

// watchEvery is how often the repositories of tasks under review are looked into.
const watchEvery = 30 * time.Second

// maxLockAt is more rejects in a row than anybody means.
const maxLockAt = 100

func setLockAt(c *Config, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxLockAt {
		return fmt.Errorf("should be a whole number from 1 to %d", maxLockAt)
	}
	c.LockAt = n
	return nil
}

func setRepoRoots(c *Config, v string) error {
	c.RepoRoots = splitList(v)
	for _, root := range c.RepoRoots {
		if !filepath.IsAbs(root) {
			return fmt.Errorf("should be absolute paths, such as /srv/repos, with commas between")
		}
	}
	return nil
}

func setTaskMirror(c *Config, v string) error {
	if v != "" && !filepath.IsAbs(v) {
		return fmt.Errorf("should be an absolute path, such as /srv/tasks")
	}
	c.TaskMirror = v
	return nil
}

// tasks is what the configuration says of tasks; the rest is what the protocol names.
func (c *Config) tasks() amp.Policy {
	p := amp.Defaults()
	p.RequirePlan, p.LockAt, p.ConfirmHigh = c.PlanApproval, c.LockAt, true
	return p
}
