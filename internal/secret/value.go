package secret

import (
	"bytes"
	"encoding/base64"
	"strings"
	"unicode"
	"unicode/utf8"
)

// looked is how much of a value is judged. Long values are judged by their beginning, so that
// hostile text cannot make us read the same bytes again and again.
const looked = 128

// form is what a value is made of.
type form struct {
	letters, digits int
	odd             int // characters that neither words nor code have, such as ! or #
	foreign         int // bytes of letters that are not English; they count as letters too
	words           bool
	joined          bool // it has more than one part
}

// formOf looks at a value. It is made of words if each of its parts, between the characters _ - . /
// : and @, is letters, or digits, or letters and then up to four digits: secret-name, sha256,
// config.auth2.token, 2024-05-01. Random text has digits in the midst of letters.
func formOf(value string) (f form) {
	f.words = true
	var letters, digits, humps int // of the part
	part := func() {
		if letters > 0 && digits > 4 || letters >= 20 && humps*4 > letters {
			f.words = false
		}
		letters, digits, humps = 0, 0, 0
	}
	for i := range len(value) {
		switch c := value[i]; {
		case isLetter(c) || c >= 0x80:
			if digits > 0 {
				f.words = false
			}
			if i > 0 && isUpper(c) && isLetter(value[i-1]) && !isUpper(value[i-1]) {
				humps++
			}
			letters++
			f.letters++
			if c >= 0x80 {
				f.foreign++
			}
		case isDigit(c):
			digits++
			f.digits++
		case strings.IndexByte("?*=()[]{}<>,;|\\\"'`", c) >= 0:
			// Labels have some of them ("Forgot?", "Password*"), code has the others.
		case strings.IndexByte("_-./:@", c) >= 0:
			f.joined = f.joined || i > 0 && i < len(value)-1
			part()
		default:
			f.odd++
		}
	}
	part()
	return f
}

// accepts reports whether a value is a credential, given how much its name is trusted. tight is
// whether the place is one where values are written rather than code: in quotes, or right after =.
func (t trust) accepts(value string, tight bool) bool {
	begin := value[:min(len(value), looked)]
	if isPlaceholder(begin) || strings.ContainsAny(begin, " \t\r\n") {
		return false
	}
	if t == asBasic {
		return isBasic(value)
	}
	if t == asSignature {
		return tight && len(value) >= 32 && isMixed(value)
	}
	if strings.Contains(begin, "://") || strings.HasPrefix(value, "arn:") {
		return false // what is secret in it is found as what it is
	}
	f := formOf(begin)
	if t == asPassword {
		switch {
		case len(value) < 6 || isPath(value) || f.foreign*2 > len(begin):
			return false // a label or a sentence in another language
		case f.letters == 0:
			return f.digits >= 6 && f.digits == len(begin) // not a date, nor a version
		case f.odd > 0 && (tight || f.digits > 0):
			return true
		}
		return f.digits > 0 && (!f.words || !f.joined)
	}
	least := 8
	if !tight {
		least = 16
	}
	return len(value) >= least && f.letters > 0 && f.digits > 0 && !f.words && (f.digits >= 4 || !isPath(value))
}

// isPath reports whether a value is the path of a file.
func isPath(value string) bool {
	return strings.HasPrefix(value, "/") || strings.HasPrefix(value, "./") || strings.HasPrefix(value, "../") ||
		strings.HasPrefix(value, "~/")
}

// placeholders are values that stand where a credential would, and words that are a type or a mode.
var placeholders = map[string]bool{
	"argon2id": true, "base64": true, "changeme": true, "changeit": true, "disabled": true, "dummy": true,
	"ed25519": true, "enabled": true, "example": true, "false": true, "hidden": true, "md5": true, "none": true,
	"null": true, "oauth2": true, "omitted": true, "optional": true, "password": true, "placeholder": true,
	"prompt": true, "redacted": true, "required": true, "sha256": true, "sha512": true, "stdin": true,
	"string": true, "true": true, "undefined": true, "unset": true,
}

// isPlaceholder reports whether a value stands for a credential without being one: ***, xxxx,
// <token>, ${VAR}, $VAR, {{ name }}, %s, your-key-here, changeme. A value with a mark in it is one:
// what was secret is gone.
func isPlaceholder(value string) bool {
	value = value[:min(len(value), looked)]
	if len(value) < 2 || isFiller(value) {
		return true
	}
	last := value[len(value)-1]
	switch value[0] {
	case '$':
		if c := value[1]; c == '{' || c == '(' || c == '_' || isLetter(c) {
			return true
		}
	case '<', '{', '[', '(':
		return true
	case '&':
		if strings.HasPrefix(value, "&lt;") {
			return true
		}
	case '%':
		if last == '%' || value[1] == '(' || len(value) == 2 {
			return true
		}
	case '@':
		return true // @file, as curl reads it
	case '#':
		if !isMixed(value) {
			return true // #password, the place on a page
		}
	}
	for _, sign := range []string{"${", "{{", "#{", "$(", "[0-9", "[a-z", "[A-Z", "...", "…", markStart} {
		if strings.Contains(value, sign) {
			return true
		}
	}
	if len(value) > 40 {
		return false
	}
	var room [40]byte
	lower := room[:len(value)]
	for i := range lower {
		lower[i] = value[i]
		if isUpper(value[i]) {
			lower[i] |= 0x20
		}
	}
	return placeholders[string(lower)] || bytes.Contains(lower, []byte("changeme")) ||
		bytes.Contains(lower, []byte("placeholder")) || bytes.HasPrefix(lower, []byte("your")) && formOf(value).words
}

// isFiller reports whether a text is nothing but x, * and the like.
func isFiller(value string) bool {
	for i := range min(len(value), looked) {
		if c := value[i]; c|0x20 != 'x' && c != '*' && c != '.' && c != '-' && c != '_' && c != '?' && c != '#' {
			return false
		}
	}
	return true
}

// isMixed reports whether a text has letters and digits, and not as words have them.
func isMixed(value string) bool {
	f := formOf(value[:min(len(value), looked)])
	return f.letters > 0 && f.digits > 0 && !f.words
}

// isBasic reports whether a text is base64 of user:password.
func isBasic(value string) bool {
	if len(value) > 1024 {
		return false
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
	if err != nil {
		return false
	}
	return len(plain) > 3 && bytes.IndexByte(plain, ':') >= 0 && utf8.Valid(plain) &&
		bytes.IndexFunc(plain, unicode.IsControl) < 0
}

func isUpper(c byte) bool  { return 'A' <= c && c <= 'Z' }
func isLetter(c byte) bool { c |= 0x20; return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// classes are the sets that a character belongs to, as bits. One comparison tells whether it is in
// an alphabet.
var classes = func() (table [256]uint16) {
	sets := [alphabets]string{
		hexes:  "",
		alnum:  "",
		upper:  "",
		word:   "_",
		url64:  "_-",
		dotted: "_-.",
		any64:  "_-+/=",
		path:   "_-.+/=%@",
	}
	for c := range 256 {
		b := byte(c)
		for a, extra := range sets {
			in := strings.IndexByte(extra, b) >= 0 || isDigit(b)
			switch alphabet(a) {
			case hexes:
				in = in || isLetter(b) && b|0x20 <= 'f'
			case upper:
				in = in || isUpper(b)
			case loose:
				in = b > ' ' && strings.IndexByte("\"'`;,&|)]}<>\\\x7f", b) < 0
			default:
				in = in || isLetter(b)
			}
			if in {
				table[c] |= 1 << a
			}
		}
	}
	return table
}()
