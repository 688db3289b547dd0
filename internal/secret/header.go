package secret

import "strings"

// header judges the value of an Authorization header at i. It may have a scheme, which stays.
func (s *scan) header(i int) {
	v := s.value(i)
	if !v.quoted && v.end < len(s.text) && s.text[v.end] == ' ' && isName(s.text[v.start:v.end]) {
		v = s.value(v.end)
	} else if scheme, _, two := strings.Cut(s.text[v.start:v.end], " "); two && v.quoted && isName(scheme) {
		v.start += len(scheme) + 1
	}
	if value := s.text[v.start:v.end]; (v.quoted || !isCode(value)) && asToken.accepts(value, true) {
		s.add("authorization", v.start, v.end, byName, i)
	}
}

// cookieHeader judges the cookies of a header at i, one by one: names stay.
func (s *scan) cookieHeader(i int) {
	if i < s.cookies {
		return // inside of one that was read
	}
	text := s.text
	for i < len(text) && strings.IndexByte(" \"'\\", text[i]) >= 0 {
		i++
	}
	for i < len(text) {
		equals := s.span(dotted, i)
		if equals == i || equals == len(text) || text[equals] != '=' {
			break
		}
		end := s.span(loose, equals+1)
		if value := text[equals+1 : end]; !isCode(value) && isCookie(text[i:equals], value) {
			s.add("cookie", equals+1, end, byName, i)
		}
		i = end
		for i < len(text) && (text[i] == ';' || text[i] == ' ') {
			i++
		}
		if i == end {
			break
		}
	}
	s.cookies = max(s.cookies, i)
}

// isCookie reports whether a cookie is worth hiding: its value is random, or its name says that it
// is a session and the value is no word.
func isCookie(called, value string) bool {
	if asToken.accepts(value, true) {
		return true
	}
	called = strings.ToLower(called)
	session := strings.Contains(called, "sess") || strings.Contains(called, "sid") || strings.Contains(called, "auth") ||
		strings.Contains(called, "token") || strings.Contains(called, "jwt")
	return session && asPassword.accepts(value, true)
}
