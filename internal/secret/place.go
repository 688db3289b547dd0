package secret

import "strings"

// atURL finds the password in scheme://user:password@host, or a token in the place of the user.
func (s *scan) atURL(i int) int {
	text := s.text
	start := i + len("://")
	at := -1
	colon := -1
	for j := start; j < len(text) && j-start < 512; j++ {
		switch c := text[j]; {
		case c == '@':
			at = j // a password may have an @; the last one ends it
		case c == ':' && colon < 0:
			colon = j
		}
		if c := text[j]; c <= ' ' || strings.IndexByte("/?\"'`<>\\|", c) >= 0 {
			break
		}
	}
	switch {
	case at < 0 || strings.Contains(text[start:at], markStart):
	case colon >= 0 && colon < at:
		if password := text[colon+1 : at]; !isPlaceholder(password) {
			s.add(kindURL, colon+1, at, byPlace, start)
		}
	case at-start >= 20 && asToken.accepts(text[start:at], true):
		s.add(kindURL, start, at, byPlace, start)
	}
	return start
}

// atBot finds the token of a Telegram bot: the bot's number, a colon, and a text that begins with AA.
func (s *scan) atBot(i int) int {
	start := i
	for start > 0 && isDigit(s.text[start-1]) && i-start < 12 {
		start--
	}
	end := s.span(url64, i+1)
	if i-start < 8 || i-start > 11 || s.text[i+1:end] == "" || !strings.HasPrefix(s.text[i+1:], "AA") || end-i < 31 {
		return i + 1
	}
	return s.add(kindTelegram, start, end, byForm, end)
}

// atTilde finds a client secret of Azure: three characters, a digit, Q~ and at least 31 more.
func (s *scan) atTilde(i int) int {
	text := s.text
	if i < 5 || text[i-1] != 'Q' || !isDigit(text[i-2]) {
		return i + 1
	}
	end := i + 1
	for end < len(text) && end-i < 64 && (classes[text[end]]&(1<<dotted) != 0 || text[end] == '~') {
		end++
	}
	if end-i < 31 {
		return i + 1
	}
	return s.add(kindAzure, i-5, end, byForm, end)
}

// atDash looks at a flag, a PEM block, or the end of a key of Mailchimp.
func (s *scan) atDash(i int) int {
	text := s.text
	if strings.HasPrefix(text[i:], "-----BEGIN ") {
		return s.atBlock(i)
	}
	if i > 0 && roles[text[i-1]] == inWord {
		return s.atRegion(i)
	}
	if i > 0 && text[i-1] == '-' || i+2 >= len(text) {
		return i + 1
	}
	start := i + 1
	if text[start] == '-' {
		start++
	}
	end := start
	for end < len(text) && end-start < 40 && classes[text[end]]&(1<<url64) != 0 {
		end++
	}
	if end == start {
		return i + 1
	}
	if s.programs != 0 && s.shortFlag(i, start, end) {
		return i + 1
	}
	if end == len(text) || text[end] != ' ' {
		return i + 1
	}
	row := lookUp(text[start:end])
	if row == nil || row.trust == asHeader {
		return i + 1
	}
	if row.trust == asCookies {
		s.cookieHeader(end)
		return i + 1
	}
	v := s.value(end)
	value := text[v.start:v.end]
	if v.start < v.end && value[0] != '-' && (v.quoted || !isCode(value)) && row.trust.accepts(value, true) {
		s.add(row.kind, v.start, v.end, byName, end)
	}
	return i + 1
}

// shortFlag looks for a password in a flag of a program that was named on this line. It reports
// whether the flag was the program's.
func (s *scan) shortFlag(i, start, end int) bool {
	text := s.text
	flag := text[start:end]
	for n := range programs {
		p := &programs[n]
		if s.programs&(1<<n) == 0 {
			continue
		}
		var v value
		switch {
		case p.pair && (flag == "user" || flag == "proxy-user"):
			v = s.value(min(end+1, len(text)))
		case start != i+1 || strings.IndexByte(p.flags, flag[0]) < 0:
			continue
		case len(flag) == 1 && end < len(text) && text[end] == ' ' && p.apart:
			v = s.value(end)
		case p.attached && (end == len(text) || text[end] != ' ' || len(flag) > 1):
			v = s.value(start + 1)
		default:
			continue
		}
		from := v.start
		if strings.Contains(text[from:min(v.end, from+looked)], markStart) {
			return true // the colon is that of a mark
		}
		if p.pair {
			from += strings.IndexByte(text[v.start:v.end], ':') + 1
			if from == v.start {
				return true // curl asks for the password
			}
		}
		value := text[from:v.end]
		if f := formOf(value[:min(len(value), looked)]); f.letters == 0 && f.odd == 0 && f.digits < 8 && !p.pair {
			return true // a port
		}
		if len(value) >= 3 && value[0] != '-' && (v.quoted || !isCode(value)) && !isPlaceholder(value) {
			s.add(kindPassword, from, v.end, byPlace, start)
		}
		return true
	}
	return false
}

// atRegion finds a key of Mailchimp: 32 hex digits and the data centre, such as -us12.
func (s *scan) atRegion(i int) int {
	text := s.text
	if i < 32 || i+3 >= len(text) || text[i+1] != 'u' || text[i+2] != 's' || !isDigit(text[i+3]) ||
		!isHex(text, i-32, 32) {
		return i + 1
	}
	end := s.span(alnum, i+1)
	return s.add(kindMailchimp, i-32, end, byForm, end)
}

// atBlock finds a private key in PEM, from BEGIN to END, or to the end of what looks like its body:
// output is often cut. Line breaks may be escaped, and the lines quoted, as in source code.
func (s *scan) atBlock(i int) int {
	text := s.text
	label, _, found := strings.Cut(text[i+len("-----BEGIN "):min(len(text), i+64)], "-----")
	if !found || !strings.Contains(label, "PRIVATE KEY") {
		return i + 1
	}
	body := i + len("-----BEGIN ") + len(label) + len("-----")
	var run int // of base64
	var keyed bool
	end := body
	for ; end < len(text); end++ {
		c := text[end]
		if classes[c]&(1<<any64) != 0 && c != '-' {
			run++
			keyed = keyed || run >= 24
			continue
		}
		run = 0
		if c == '-' && strings.HasPrefix(text[end:], "-----") || c > ' ' && strings.IndexByte("-\\\"'`,:.()", c) < 0 {
			break
		}
	}
	if !keyed {
		return body
	}
	if rest, closed := strings.CutPrefix(text[end:], "-----END "); closed {
		if tail := strings.Index(rest[:min(len(rest), 64)], "-----"); tail >= 0 {
			end += len("-----END ") + tail + len("-----")
		}
	}
	return s.add(kindPrivateKey, i, end, byForm, end)
}
