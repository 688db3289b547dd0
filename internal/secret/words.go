package secret

import "strings"

// leastDiscord is how long the first part of a token of a Discord bot is at least.
const leastDiscord = 23

// atWord tries what may begin at a word, and returns where to go on.
func (s *scan) atWord(i, end int, tries []try) int {
	for t := range tries {
		t := &tries[t]
		rest := s.text[i:]
		if !strings.HasPrefix(rest, t.prefix) &&
			(!t.fold || len(rest) < len(t.prefix) || !strings.EqualFold(rest[:len(t.prefix)], t.prefix)) {
			continue
		}
		if next := s.follow(t, i, end); next > 0 {
			return next
		}
	}
	if n := end - i; n >= leastDiscord && n <= 28 && end < len(s.text) && s.text[end] == '.' {
		return s.discord(i, end)
	}
	return end
}

// discord is a token of a Discord bot, of three parts. The first is a number in base64, so it begins
// with M, N or O.
func (s *scan) discord(i, end int) int {
	second := s.span(url64, end+1)
	if n := second - end - 1; n < 6 || n > 7 || second == len(s.text) || s.text[second] != '.' ||
		strings.IndexByte("MNO", s.text[i]) < 0 || !isMixed(s.text[i:end]) {
		return end
	}
	if third := s.span(url64, second+1); third-second > 25 {
		return s.add(kindDiscord, i, third, byForm, third)
	}
	return end
}

// follow follows up a try whose prefix stands at i. It returns where to go on, 0 if it is nothing.
func (s *scan) follow(t *try, i, end int) int {
	body := i + len(t.prefix)
	switch t.how {
	case byShape:
		return s.matchShape(t.shape, i, body)
	case byProgram:
		if body == end || len(t.prefix) > end-i { // a whole word; the name may have a hyphen
			s.programs |= 1 << t.program
		}
	case byJWT:
		return s.jwt(i)
	case byBearer, byBasic:
		return s.scheme(t.how, body)
	case byTerraform:
		return s.terraform(i, body)
	case byPasswordWord:
		if body == end {
			return s.afterPassword(i, body)
		}
	case byIdentified:
		v := s.value(body)
		if v.quoted && s.text[v.start-1] == '\'' && v.end-v.start >= 3 && !isPlaceholder(s.text[v.start:v.end]) {
			return s.add(kindPassword, v.start, v.end, byPlace, v.start)
		}
	}
	return 0
}

// terraform is a token of Terraform Cloud. Fourteen characters and a dot come before the fixed text.
func (s *scan) terraform(i, body int) int {
	last := s.span(url64, body)
	if i < 15 || s.text[i-1] != '.' || last-body < 40 {
		return 0
	}
	for _, c := range []byte(s.text[i-15 : i-1]) {
		if classes[c]&(1<<alnum) == 0 {
			return 0
		}
	}
	return s.add(kindTerraform, i-15, last, byForm, last)
}

// matchShape checks what follows a prefix of the table.
func (s *scan) matchShape(sh *shape, i, body int) int {
	last := s.span(sh.body, body)
	for last > body && s.text[last-1] == '.' {
		last-- // the end of a sentence
	}
	text := s.text[body:last]
	if len(text) < sh.least || isFiller(text) || sh.flags&mixed != 0 && !isMixed(text) ||
		sh.flags&exact != 0 && (len(text) > sh.least || s.isPart(i, last)) {
		return 0
	}
	if sh.flags&kept != 0 {
		i = body
	}
	return s.add(sh.kind, i, last, byForm, last)
}

// isPart reports whether what stands from start to end is a part of something longer.
func (s *scan) isPart(start, end int) bool {
	return start > 0 && strings.IndexByte("-_+", s.text[start-1]) >= 0 || end < len(s.text) && roles[s.text[end]] == inWord
}

// jwt is a token of two or more parts, of which the first is an object in base64, or an encrypted
// one of five.
func (s *scan) jwt(i int) int {
	head := s.span(url64, i)
	if head-i < 10 || head == len(s.text) || s.text[head] != '.' {
		return 0
	}
	last := s.span(dotted, i)
	for s.text[last-1] == '.' {
		last--
	}
	if last-head < 10 || !strings.HasPrefix(s.text[head+1:], "eyJ") && last-head < 60 {
		return 0
	}
	return s.add(kindJWT, i, last, byForm, last)
}

// scheme is a credential after Bearer or Basic. Prose has a word there.
func (s *scan) scheme(h how, body int) int {
	last := s.span(path, body)
	for last > body && s.text[last-1] == '.' {
		last--
	}
	value := s.text[body:last]
	switch {
	case h == byBasic && len(value) >= 6 && isBasic(value):
		return s.add(kindBasic, body, last, byPlace, body)
	case h == byBearer && asToken.accepts(value, true):
		return s.add(kindBearer, body, last, byPlace, body)
	}
	return 0
}

// afterPassword is a password that follows the word and a space: in .netrc, after a login or a
// machine, or in quotes as in SQL.
func (s *scan) afterPassword(i, end int) int {
	if end == len(s.text) || s.text[end] != ' ' && s.text[end] != '\t' {
		return 0
	}
	v := s.value(end)
	value := s.text[v.start:v.end]
	if v.quoted && asPassword.accepts(value, true) {
		return s.add(kindPassword, v.start, v.end, byPlace, v.start)
	}
	_, before := lastWord(s.text[max(0, i-looked):i])
	field, _ := lastWord(before)
	if field != "login" && field != "machine" && field != "account" || !asPassword.accepts(value, false) {
		return 0
	}
	return s.add(kindPassword, v.start, v.end, byPlace, v.start)
}

// lastWord cuts the last word off a text.
func lastWord(text string) (last, before string) {
	text = strings.TrimRight(text, " \t\r\n")
	cut := strings.LastIndexAny(text, " \t\r\n") + 1
	return text[cut:], text[:cut]
}
