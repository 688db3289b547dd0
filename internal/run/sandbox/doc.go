// Package sandbox owns the room in which the CLI of a run works when it may have nothing but its folder
// (RUN-60 and RUN-61 in docs/protocols/runs.md). The walls are the kernel's, through bubblewrap: namespaces of users,
// processes, the network, mounts and IPC, no capabilities, and a file system that is built of what is listed here.
// It knows no server and no ledger.
//
// Open prepares a Box: copies of the CLI's own settings, and the door. Wrap makes a command one that runs in it, and
// Close carries logins back that the CLI has renewed, and removes the rest.
//
// # The door
//
// There is no network in the box but its own loopback. A Unix socket leads out: whoever writes HOST:PORT into it gets a
// connection to there, as a file descriptor, or the reason why not (door.go). The door stands outside, in the process
// that watches the run, and decides. Inside, a process of ours (inside.go) makes that a proxy of HTTP, and listens
// where the Signalbox server is outside. Since it holds the connections itself, the server sees at the other end a
// process of the agent, and not the person's.
//
// # What always holds
//
// Nothing is in the box that is not named: a new file of the machine is outside. Whatever cannot be set up refuses the
// run. The agent can write to its folder, to copies that are thrown away, and to the folders in which its CLI keeps
// sessions; to nothing that makes a program outside of the box run a command: no settings, plugins or hooks of the
// CLI, nothing of git.
package sandbox
