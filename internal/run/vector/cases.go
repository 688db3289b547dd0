package vector

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"signalbox/internal/run/engine"
	"signalbox/internal/wire"
)

// checkArgs checks command lines and what goes to standard input (RUN-17).
func checkArgs(dir string) ([]Outcome, error) {
	var file struct {
		Command string `json:"command"`
		Cases   []struct {
			Name     string   `json:"name"`
			Prompt   string   `json:"prompt"`
			Resume   *string  `json:"resume"`
			Latest   bool     `json:"is_continue"`
			Settings settings `json:"settings"`
			Args     []string `json:"argv"`
			Stdin    string   `json:"stdin"`
		} `json:"cases"`
	}
	if err := read(filepath.Join(dir, "argv.cases.json"), &file); err != nil {
		return nil, ignoreAbsent(err)
	}
	var all []Outcome
	for _, c := range file.Cases {
		o := Outcome{Name: "argv/" + c.Name}
		e, err := engine.Find(file.Command)
		if err != nil {
			return nil, err
		}
		// A case without a session starts a new one; is_continue asks for the CLI's most
		// recent.
		j := c.Settings.job(file.Command)
		j.Prompt, j.Resume = c.Prompt, engine.Resume{Engine: e.Name, Latest: c.Latest}
		if c.Resume != nil {
			j.Resume.Value = *c.Resume
		}
		if got := e.Args(j); !slices.Equal(got, c.Args) {
			o.Problem = fmt.Sprintf("the arguments are %q, and should be %q", got, c.Args)
		} else if got := e.Input(j); got != c.Stdin {
			o.Problem = fmt.Sprintf("standard input is %q, and should be %q", got, c.Stdin)
		}
		all = append(all, o)
	}
	return all, nil
}

// checkResume checks resume lines: how they are written, and where they are found in
// texts (RUN-26).
func checkResume(dir string) ([]Outcome, error) {
	var file struct {
		// Format are tokens with the lines that are written for them; Cases are texts with what
		// is found in them.
		Format []struct{ Token, Line string }
		Cases  []struct {
			Text    string  `json:"text"`
			Extract *string `json:"extract"`
			Is      bool    `json:"is_resume_line"`
		} `json:"cases"`
	}
	if err := read(filepath.Join(dir, "resume.cases.json"), &file); err != nil {
		return nil, ignoreAbsent(err)
	}
	// Resume lines and titles of the vectors are those of amp, whose rules the others
	// share.
	e, err := engine.Find("amp")
	if err != nil {
		return nil, err
	}
	var all []Outcome
	for _, f := range file.Format {
		o := Outcome{Name: "resume/format " + f.Token}
		if got, err := e.FormatResume(engine.Resume{Engine: "amp", Value: f.Token}); got != f.Line || err != nil {
			o.Problem = fmt.Sprintf("the line is %q, and should be %q", got, f.Line)
		}
		all = append(all, o)
	}
	for i, c := range file.Cases {
		o := Outcome{Name: fmt.Sprintf("resume/%d", i+1)}
		got, found := e.ExtractResume(c.Text)
		switch {
		// Whether a line is found, and whether the whole text is one, are two questions: a text
		// may quote a line.
		case found != (c.Extract != nil), found && got.Value != *c.Extract:
			o.Problem = fmt.Sprintf("in %q the session is %q, which is wrong", c.Text, got.Value)
		case e.IsResumeLine(c.Text) != c.Is:
			o.Problem = fmt.Sprintf("whether %q is a resume line should be %v", c.Text, c.Is)
		}
		all = append(all, o)
	}
	return all, nil
}

// checkTitles checks kinds and titles of tool calls.
func checkTitles(dir string) ([]Outcome, error) {
	var file struct {
		Dir   string `json:"base_dir"`
		Cases []struct {
			Tool  string      `json:"tool"`
			Input wire.Raw    `json:"input"`
			Kind  engine.Kind `json:"kind"`
			Title string      `json:"title"`
		} `json:"cases"`
	}
	if err := read(filepath.Join(dir, "titles.cases.json"), &file); err != nil {
		return nil, ignoreAbsent(err)
	}
	var all []Outcome
	for i, c := range file.Cases {
		o := Outcome{Name: fmt.Sprintf("titles/%d %s", i+1, c.Tool)}
		if kind, title := engine.Describe(c.Tool, c.Input, file.Dir); kind != c.Kind || title != c.Title {
			o.Problem = fmt.Sprintf("it is a %s called %q, and should be a %s called %q", kind, title, c.Kind, c.Title)
		}
		all = append(all, o)
	}
	return all, nil
}

// ignoreAbsent makes an optional file one without cases.
func ignoreAbsent(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
