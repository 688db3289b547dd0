package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"signalbox/internal/testbed"
)

// terminal is a real one (a pseudo terminal) with a command on it.
type terminal struct {
	t             *testing.T
	side          *os.File
	fd            uintptr
	columns, rows uint16
	seen          testbed.Buffer
	cmd           *exec.Cmd
	done          chan error
}

func (term *terminal) control(call uintptr, v unsafe.Pointer) {
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, term.fd, call, uintptr(v)); e != 0 {
		term.t.Fatal(e)
	}
}

func (term *terminal) resize() {
	size := [4]uint16{term.rows, term.columns, 0, 0}
	term.control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
}

// openTerminal runs the binary on a terminal of so many columns and rows.
func openTerminal(t *testing.T, columns, rows uint16, args ...string) *terminal {
	t.Helper()
	side, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there is no pseudo terminal here: %v", err)
	}
	fd := side.Fd()
	term := &terminal{
		t: t, fd: fd, columns: columns, rows: rows,
		cmd: exec.CommandContext(context.Background(), binary, args...), done: make(chan error, 1),
	}
	var lock, number int32
	term.control(syscall.TIOCSPTLCK, unsafe.Pointer(&lock))
	term.control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	term.resize()
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = screen.Close() }()
	term.side = side
	term.cmd.Env = append(cleanEnv(), "TERM=xterm-256color", "PAGER=less", "LESS=")
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = screen, screen, screen
	term.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for b := make([]byte, 64<<10); ; {
			n, err := term.side.Read(b)
			_, _ = term.seen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { term.done <- term.cmd.Wait() }()
	t.Cleanup(func() { _ = term.cmd.Process.Kill(); _ = side.Close() })
	return term
}

var controls = regexp.MustCompile(`\x1b\[[0-9;?<>=$ ]*[a-zA-Z]|\x1b[\]P][^\x07\x1b]*(\x07|\x1b\\)`)

// sees waits until the texts are on the screen, which is always written as a whole.
func (term *terminal) sees(texts ...string) {
	term.t.Helper()
	term.shows(fmt.Sprintf("%q", texts), func(screen string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(screen, text) })
	})
}

// shows waits until what is on the screen is so.
func (term *terminal) shows(what string, so func(screen string) bool) {
	term.t.Helper()
	testbed.Until(term.t, what+" on the screen", func() bool {
		// The last frame may not be whole yet.
		frames := term.frames()
		return slices.ContainsFunc(frames[max(0, len(frames)-2):], so)
	}, term)
}

// frames are the texts that were on the screen so far.
func (term *terminal) frames() []string {
	frames := strings.Split(term.seen.String(), "\x1b[?2026h")
	for i, frame := range frames {
		frames[i] = controls.ReplaceAllString(frame, "")
	}
	return frames
}

// String is what is on the screen now.
func (term *terminal) String() string { frames := term.frames(); return frames[len(frames)-1] }

func (term *terminal) types(keys string) {
	term.t.Helper()
	if _, err := term.side.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) ends() {
	term.t.Helper()
	if err := testbed.Receive(term.t, "its end", term.done); err != nil {
		term.t.Errorf("it ended with %v", err)
	}
}

func ask(t *testing.T, p *process, key, run, action string) {
	t.Helper()
	body := `{"amp_version":"1.0","agent_id":"asker","run_id":"` + run +
		`","status":"completed","summary":"Did it","proposed_action":"` + action +
		`","model":"m","input_tokens":1,"output_tokens":1,"cost_usd":0,"gate_required":true,` +
		`"started_at":"2026-03-06T22:10:38Z","completed_at":"2026-03-06T22:10:46Z"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/amp/signal", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusAccepted {
		t.Fatal(res.Status)
	}
}

func TestGatesAreDecidedOnATerminal(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	key := regexp.MustCompile(`rs-amp-[0-9a-z]{32}`).FindString(mustRun(t, p.dir, "agents", "add", "asker"))
	ask(t, p, key, "one", "Paint the fence")
	for _, width := range []uint16{120, 70} {
		term := openTerminal(t, width, 30, "gates", "watch", "--data", p.dir)
		term.sees("Paint the fence", "live")
		ask(t, p, key, fmt.Sprintf("two-%d", width), fmt.Sprintf("Cut the hedge \\u001b[2J in %d", width))
		term.sees("Cut the hedge")
		term.types("?")
		term.sees("reject, with a reason")
		term.types("x/hedge\r")
		term.sees("/hedge")
		term.types("r")
		term.sees("because:")
		term.types("\r")
		term.sees("Say why")
		term.types("Birds nest in it\r")
		term.sees("Rejected:")
		term.types("/" + strings.Repeat("\x7f", len("hedge")) + "\r  a") // to the end of the gate
		term.sees("enter does it")
		term.types("\x03") // leaves, and decides nothing
		term.ends()
	}
	var gates struct {
		Gates []struct{ Status, Note, Title string }
	}
	p.get("/ops/gates", &gates)
	rejected := 0
	for _, g := range gates.Gates {
		switch {
		case g.Status == "rejected" && g.Note == "Birds nest in it":
			rejected++
		case g.Status != "pending":
			t.Errorf("%v", g)
		}
	}
	if rejected != 2 {
		t.Errorf("%d were rejected: %v", rejected, gates)
	}
}

func TestTheOverviewOnATerminal(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	key := regexp.MustCompile(`rs-amp-[0-9a-z]{32}`).FindString(mustRun(t, p.dir, "agents", "add", "asker"))
	term := openTerminal(t, 120, 36, "top", "--data", p.dir)
	term.sees("gates waiting", "Nothing waits", "asker", "Cost by day")
	ask(t, p, key, "one", "Paint the fence")
	term.sees("Paint the fence", "gate.opened")
	term.types("q")
	term.ends()
	if code, out := run(t, p.dir, "top"); code != 2 || !strings.Contains(out, "signalbox counters") {
		t.Errorf("without a terminal: %d %s", code, out)
	}
}
