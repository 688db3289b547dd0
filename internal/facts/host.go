package facts

import (
	"net/url"
	"strings"
)

// hostOf is the host of an address: a URL, user@host, host:path, or a bare name where one is expected.
func hostOf(text string, bare bool) string {
	if _, rest, ok := strings.Cut(text, "://"); ok {
		if u, err := url.Parse(text); err == nil {
			return u.Hostname()
		}
		rest, _, _ = strings.Cut(rest, "/") // a URL with something in it that a shell would put in
		if _, after, ok := strings.Cut(rest, "@"); ok {
			rest = after
		}
		name, _, _ := strings.Cut(rest, ":")
		return name
	}
	if !bare {
		return ""
	}
	if _, after, ok := strings.Cut(text, "@"); ok {
		text = after
	}
	text, _, _ = strings.Cut(text, "/")
	if strings.HasPrefix(text, "[") { // an IPv6 address
		name, _, _ := strings.Cut(strings.TrimPrefix(text, "["), "]")
		return name
	}
	text, _, _ = strings.Cut(text, ":")
	text, _, _ = strings.Cut(text, "?")
	return text
}

// urlsIn are the addresses in a text.
func urlsIn(text string) (all []string) {
	for {
		i := strings.Index(text, "://")
		if i < 0 {
			return all
		}
		begin := i
		for begin > 0 && isLetter(text[begin-1]) {
			begin--
		}
		end := i + 3
		for end < len(text) && !strings.ContainsRune(" \t\n\"'<>|;()`\\", rune(text[end])) {
			end++
		}
		if begin < i && end > i+3 {
			all = append(all, text[begin:end])
		}
		text = text[end:]
	}
}

func isLetter(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '+'
}

// gitHost is the host of a remote of git: a URL, or user@host:path.
func gitHost(text string) string {
	if strings.Contains(text, "://") {
		return hostOf(text, false)
	}
	before, _, ok := strings.Cut(text, ":")
	if !ok || strings.ContainsAny(before, "/ ") || !strings.ContainsAny(before, "@.") {
		return ""
	}
	return hostOf(before, true)
}

// deviceHost is the host of bash's /dev/tcp/HOST/PORT.
func deviceHost(path string) (string, bool) {
	for _, device := range []string{"/dev/tcp/", "/dev/udp/"} {
		if rest, ok := strings.CutPrefix(path, device); ok {
			host, _, _ := strings.Cut(rest, "/")
			return host, true
		}
	}
	return "", false
}
