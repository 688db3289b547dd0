package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

// bashClients are folders with the amp-*.sh scripts of Agent Messaging and of AI Maestro. Nothing of others is in this
// repository: SIGNALBOX_TEST_AMP_SCRIPTS names the folders of checkouts that have them, separated by colons.
func bashClients(t *testing.T) []string {
	t.Helper()
	folders := filepath.SplitList(os.Getenv("SIGNALBOX_TEST_AMP_SCRIPTS"))
	if len(folders) == 0 {
		t.Skip("SIGNALBOX_TEST_AMP_SCRIPTS names no checkout of the scripts")
	}
	return folders
}

// TestTheBashClientsWorkFromThePage runs what docs/mail.md says about the scripts.
func TestTheBashClientsWorkFromThePage(t *testing.T) {
	t.Parallel()
	folders := bashClients(t)
	_, section, _ := strings.Cut(readPage(t, "docs/mail.md"), "\n## The bash clients\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := blocks(section)
	if len(all) < 3 {
		t.Fatalf("docs/mail.md has %d blocks about the bash clients", len(all))
	}
	send, answered, register := all[0].text, all[1].text, all[2].text
	for _, folder := range folders {
		testbed.Parallel(t, folder, func(t *testing.T) {
			s := beginWithScripts(t, folder, "")
			s.run(block{text: send + `signalbox mail --dir bob fetch
signalbox mail --dir bob read msg_…
signalbox mail --dir bob send dora "Here" "A file." --attach invoice.csv
` + answered + "signalbox mail --dir bob fetch\nsignalbox mail --dir bob read msg_…\n"})
			for _, want := range []string{"From a script.", "A file.", "Done.", "verified"} {
				if !strings.Contains(s.seen.String(), want) {
					t.Errorf("nothing printed %q:\n%s", want, s.seen.String())
				}
			}

			owned := beginWithScripts(t, folder, "mail: {registration: owner}\n")
			settings, _, _ := strings.Cut(send, "\n")
			owned.run(block{text: settings + "\namp-init.sh --name dora\nsignalbox users add team-b\n" + register +
				`signalbox mail --dir bob fetch
signalbox mail --dir bob send dora "There" "Another file." --attach invoice.csv
` + answered + "signalbox mail --dir bob fetch\nsignalbox mail --dir bob read msg_…\n"})
			for _, want := range []string{"Registration successful", "Hello", "Another file.", "Done.", "verified"} {
				if !strings.Contains(owned.seen.String(), want) {
					t.Errorf("registered by a user, nothing printed %q:\n%s", want, owned.seen.String())
				}
			}
		})
	}
}

// TestTheBashClientsWorkWithBothDefaults goes through every step of both bash clients, with one another and with ours, on
// a default server and without a setting but the server's address and the agent's name.
func TestTheBashClientsWorkWithBothDefaults(t *testing.T) {
	t.Parallel()
	folders := bashClients(t)
	for _, folder := range folders {
		testbed.Parallel(t, folder, func(t *testing.T) {
			s := beginWithScripts(t, folder, "")
			step := func(line string, wanted ...string) {
				t.Helper()
				before := len(s.seen.String())
				s.run(block{text: bashSteps + line + "\n"})
				for _, want := range wanted {
					if now := s.seen.String()[before:]; !strings.Contains(now, want) {
						t.Errorf("%s printed no %q:\n%s", line, want, now)
					}
				}
			}
			step("as dora amp-init.sh --name dora", "AMP identity registered")
			step("as emil amp-init.sh --name emil", "AMP identity registered")
			step(`as dora amp-send.sh emil "Hi" "To a script. äöü" --attach invoice.csv`, "Message sent", "queued")
			step("as emil amp-fetch.sh", "1 new message")
			step("as emil amp-inbox.sh", "Hi")
			step("as emil amp-read.sh msg_…", "To a script. äöü", "invoice.csv")
			step("as emil amp-download.sh msg_… --all", "1 downloaded, 0 failed")
			step(`as emil amp-reply.sh msg_… "Back."`, "Message sent")
			step("as dora amp-fetch.sh; as dora amp-inbox.sh", "Re: Hi")
			step("as dora amp-delete.sh msg_… --force", "Message deleted")
			// With our client, in both directions, whoever begins.
			step(`as dora amp-send.sh bob "Yo" "To ours."`, "Message sent")
			step("signalbox mail --dir bob fetch", "Yo", "verified")
			step(`signalbox mail --dir bob reply msg_… "From ours." --attach invoice.csv`, "queued")
			step("as dora amp-fetch.sh; as dora amp-inbox.sh", "Re: Yo")
			step("as dora amp-read.sh msg_… --json", "From ours.", "bob@default.aimaestro.local", `"trust": "verified"`)
			step("as dora amp-download.sh msg_… --all", "1 downloaded, 0 failed")
			step(`as dora amp-reply.sh msg_… "Done."`, "Message sent")
			step(`signalbox mail --dir bob send emil "Begun" "By ours."`, "queued")
			step("as emil amp-fetch.sh; as emil amp-inbox.sh", "Begun")
			step("as emil amp-read.sh msg_… --json", "By ours.", `"trust": "verified"`)
			step(`as emil amp-reply.sh msg_… "Answered."`, "Message sent")
			step("signalbox mail --dir bob fetch; signalbox mail --dir bob read msg_…", "Answered.")
			// In a folder of theirs, our client verifies what was signed.
			step(`signalbox mail --dir bob send emil "Signed" "In our words."`, "queued")
			step("as emil signalbox mail --agent emil fetch", "Signed", "verified")
			// New keys, as the page says. Generation B has a command of its own.
			if strings.Contains(string(testbed.Read(t, filepath.Join(folder, "amp-init.sh"))), "rotate-keys") {
				step("as dora amp-init.sh --name dora --force", "Keys rotated")
				step(`as dora amp-send.sh bob "Turned" "With keys of my own."`, "Message sent")
				step("signalbox mail --dir bob fetch; signalbox mail --dir bob read msg_…", "With keys of my own.", "verified")
			}
			step("as dora signalbox mail --agent dora rotate", "SHA256:")
			step(`as dora amp-send.sh emil "New" "With the new key."`, "Message sent")
			step("as emil amp-fetch.sh", "1 new message")
		})
	}
}

// TestTheBashClientsFetchFilesOverAMesh: from their own host, which is all that they may reach.
func TestTheBashClientsFetchFilesOverAMesh(t *testing.T) {
	t.Parallel()
	folders := bashClients(t)
	for _, folder := range folders {
		testbed.Parallel(t, folder, func(t *testing.T) {
			one, two := testbed.FreeAddress(t), testbed.FreeAddress(t)
			const secret = "0123456789abcdef"
			a := upWith(t, t.TempDir(), one, "mesh: {host: host-a, hosts: host-b=http://"+two+", secrets: host-b="+secret+"}")
			s := beginWithScripts(t, folder, "mail: {mesh: {host: host-b, hosts: host-a=http://"+one+", secrets: host-a="+
				secret+"}}\n", "--listen", two)
			curl, err := exec.LookPath("curl")
			if err != nil {
				t.Fatal(err)
			}
			testbed.Script(t, filepath.Join(s.dir, "bin", "curl"),
				fmt.Sprintf("case \"$*\" in *%s*) exit 7 ;; esac\nexec %s \"$@\"\n", one, curl))
			s.run(block{text: bashSteps + "as dora amp-init.sh --name dora\n"})
			alice := newMailer(t, a, "alice", "")
			alice.mail("send", "dora", "Hello", "With a file.", "--attach", filepath.Join(s.dir, "invoice.csv"))
			s.run(block{text: bashSteps + `as dora amp-fetch.sh; as dora amp-inbox.sh
as dora amp-read.sh msg_…
as dora amp-download.sh msg_… --all
as dora amp-reply.sh msg_… "Back." --attach invoice.csv
`})
			for _, want := range []string{"With a file.", "1 downloaded, 0 failed", "Message sent"} {
				if !strings.Contains(s.seen.String(), want) {
					t.Errorf("nothing printed %q:\n%s", want, s.seen.String())
				}
			}
			alice.receives(t, "Back.", "dora@default.aimaestro.local")
			all := alice.letters(t)
			alice.mail("download", all[0].ID, "--all", "--dest", alice.dir)
			if text := testbed.Read(t, filepath.Join(alice.dir, "invoice.csv")); !strings.Contains(string(text), "1,20") {
				t.Errorf("%q", text)
			}
		})
	}
}

// bashSteps lets an agent of its own folder run a script, with the defaults of the script.
const bashSteps = `as() { who=$1; shift; mkdir -p "home-$who"; env HOME="$PWD/home-$who" ` +
	`AMP_MAESTRO_URL=http://127.0.0.1:7446 CLAUDE_AGENT_NAME="$who" "$@"; }` + "\n"

// beginWithScripts begins a story in which bob has an address and the scripts are on the path.
func beginWithScripts(t *testing.T, folder, config string, args ...string) *story {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(folder, "amp-*.sh"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%s has no amp-*.sh: %v", folder, err)
	}
	s := begin(t, config, args...)
	for _, script := range scripts {
		s.install(filepath.Base(script), script)
	}
	s.write("invoice.csv", block{text: "number,amount\n1,20\n"})
	s.run(block{text: `signalbox users add team-a
signalbox mail --dir bob register bob --user-key uk_…
`})
	return s
}
