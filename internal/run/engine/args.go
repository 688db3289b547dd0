package engine

// An argument line is a slices.Concat of its parts. A part that has nothing to say is empty, and the
// CLI does as its own configuration says.

// option is a flag with its value, empty without a value.
func option(flag, value string) []string {
	if value == "" {
		return nil
	}
	return []string{flag, value}
}

// allowAllOption is what tells the CLI to ask nobody, empty where it has to ask.
func (j Job) allowAllOption(flag string) []string {
	if !j.Settings.AllowAll {
		return nil
	}
	return []string{flag}
}

// sessionOption says which session goes on: latest for the last one, named and its token for a
// certain one, nothing for a new one.
func (j Job) sessionOption(latest []string, named ...string) []string {
	switch {
	case j.Resume.Latest:
		return latest
	case j.Resume.Value != "":
		return append(named, j.Resume.Value)
	}
	return nil
}
