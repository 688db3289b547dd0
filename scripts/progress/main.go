// Command progress runs go test, and prints each package when it ends and each failure
// when it happens. go test alone prints packages in the order of their names, so a slow
// one holds back all that follow. It knows nothing about what is tested.
//
//	go run ./scripts/progress -timeout 30m ./...
package main

import (
	"bufio"
	"context"
	"encoding/json" // the lines of go test -json, which are its own
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// quiet is the time without output after which a line says what is running. CI systems
// end jobs that print nothing.
const quiet = 15 * time.Second

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// run runs go test with the arguments and returns its exit code, so that make and CI see
// failures as before. The error is for go test itself not being started.
func run(args []string) (int, error) {
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	// Read in another goroutine, so that follow can notice silence. ReadBytes has no
	// limit for the length of a line; tests may print long ones.
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(stdout); ; {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	follow(newReport(os.Stdout, time.Now), lines)
	err = cmd.Wait()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		return max(1, cmd.ProcessState.ExitCode()), nil
	}
	return 0, err
}

// follow reports the lines until there are no more. A line that is not JSON comes from
// the build and is printed as it is.
func follow(r *report, lines <-chan []byte) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				r.end()
				return
			}
			var e event
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "build-output", Output: string(line)}
			}
			r.add(e)
		case <-tick.C:
			if r.now().Sub(r.printed) >= quiet {
				r.sayWhatRuns()
			}
		}
	}
}
