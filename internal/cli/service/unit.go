package service

import (
	"fmt"
	"path/filepath"
	"strings"

	"signalbox/internal/cli/command"
)

// Service is what an installation is made of. Paths are those of the machine on which it will run.
type Service struct {
	User, Data, Listen string
	Program            string
}

// The files of an installation.
const (
	unitFile     = "/etc/systemd/system/signalbox.service"
	sysusersFile = "/etc/sysusers.d/signalbox.conf"
	programFile  = "/usr/local/bin/signalbox"
)

// stateFolder is the folder below which systemd itself makes a service's folder of data.
const stateFolder = "/var/lib/"

// unit is the unit of systemd. The server may write to its two folders, talk to the network, and do
// nothing else: whatever gets hold of it has no home folder to read and no program to become root with.
func (s *Service) unit() string {
	var folder string
	if below, ok := strings.CutPrefix(s.Data, stateFolder); ok {
		folder = "StateDirectory=" + below + "\nStateDirectoryMode=0700"
	} else {
		folder = "ReadWritePaths=" + s.Data
	}
	return fmt.Sprintf(`# Written by "signalbox service install"; "systemctl edit signalbox" changes it.
[Unit]
Description=Signalbox, between AI agents and the people who answer for them
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
User=%[1]s
Group=%[1]s
ExecStart=%[2]s up --data %[3]s --listen %[4]s
ExecReload=%[2]s config reload --data %[3]s
Restart=on-failure
TimeoutStopSec=30
UMask=0077

# Only this user reads the data. Members of its group find the address and the socket for hooks.
%[5]s
RuntimeDirectory=%[6]s
RuntimeDirectoryMode=0750
Environment=SIGNALBOX_SERVER_SHARED_FOLDER=%[7]s

# /proc stays as it is: the server looks at the processes that call it.
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
`, s.User, s.Program, s.Data, s.Listen, folder, filepath.Base(command.SharedFolder), command.SharedFolder)
}

// sysusers is the configuration of systemd-sysusers that makes the user and its group.
func (s *Service) sysusers() string {
	return fmt.Sprintf("# Written by \"signalbox service install\".\nu %s - \"Signalbox\" %s\n", s.User, s.Data)
}
