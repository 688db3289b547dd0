// Package injection finds marks of prompt injection in a text: attempts to make a model that reads it
// do something else; and it wraps a text for a model that must not take it for instructions (wrap.go).
// It knows texts and where in a message they stand (message.go), and nothing of senders and files.
//
// What it finds is a mark and no proof, and what it does not find is no proof either. It reports
// categories; what follows from them is for its callers to decide (MSG-49). Provider and client use
// the same list, so that a message means the same to both.
package injection

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// The categories, by the names that clients of the protocol know.
const (
	InstructionOverride = "instruction_override"
	PromptExtraction    = "prompt_extraction"
	CommandInjection    = "command_injection"
	DataExfiltration    = "data_exfiltration"
	RoleManipulation    = "role_manipulation"
	SocialEngineering   = "social_engineering"
	ToolAbuse           = "tool_abuse"
	UnicodeTricks       = "unicode_tricks"
)

// trick is one expression of a category. One of words must be in the text before form is tried,
// which costs a fraction of the expression: choose words that every match of form contains.
type trick struct {
	category string
	words    []word
	form     *regexp.Regexp
}

// word is a text and the set of its letters: a text that lacks one of them does not contain it.
type word struct {
	text    string
	letters uint64
}

// newTrick compiles an expression. words are separated by commas.
func newTrick(category, words, form string) trick {
	t := trick{category: category, form: regexp.MustCompile(form)}
	for text := range strings.SplitSeq(words, ",") {
		t.words = append(t.words, word{text, letters(text)})
	}
	return t
}

// letters is the set of bytes of a text, folded to 64 bits. Two bytes may share a bit, so a set can
// rule a word out and never in.
func letters(text string) (set uint64) {
	for i := range len(text) {
		set |= 1 << (text[i] & 63)
	}
	return set
}

// tricks are matched against normalised text in lower case. The gaps between words are bounded and end
// at a full stop, so that two unrelated sentences do not add up to one.
var tricks = []trick{
	newTrick(InstructionOverride, "ignore,disregard,forget",
		`\b(ignore|disregard|forget)\b[^.\n]{0,40}\b(previous|prior|above|earlier|all|your|system)\b`+
			`[^.\n]{0,30}\b(instruction|prompt|rule|guideline|direction|context)`),
	newTrick(InstructionOverride, "you are now,from now on", `\b(you are now|from now on,? you)\b`),
	newTrick(InstructionOverride, "new instruction,priority instruction,updated instruction",
		`\b(new|priority|updated) instructions?\s*:`),
	newTrick(InstructionOverride, "system", `(^|\n)\s*(\[system\]|system\s*:|<\|?system\|?>)`),
	newTrick(InstructionOverride, "mode", `\b(developer|unrestricted|god|jailbreak|debug) mode\b`),
	newTrick(InstructionOverride, "not follow,n't follow", `\b(do not|don't) follow (your|the|any|previous)\b`),
	newTrick(PromptExtraction, "prompt,instructions",
		`\b(print|reveal|show|display|output|repeat|tell me|give me)\b[^.\n]{0,30}`+
			`\b(system prompt|initial prompt|your prompt|initial instructions|your instructions)`),
	newTrick(PromptExtraction, "text above,words above,everything above",
		`\b(repeat|print|copy)\b[^.\n]{0,20}\b(text|words|everything) above\b`),
	newTrick(PromptExtraction, "initial instruction,system instruction",
		`\b(translate|summari[sz]e|paraphrase)\b[^.\n]{0,30}\b(initial|system) (instructions|prompt)`),
	newTrick(CommandInjection, "curl,wget", `\b(curl|wget)\s+(-\S+\s+)*['"]?https?://`),
	newTrick(CommandInjection, "rm -", `\brm\s+-[a-z]*[rf][a-z]*\s`),
	newTrick(CommandInjection, "sudo", `\bsudo\s+\S`),
	newTrick(CommandInjection, "chmod", `\bchmod\s+([0-7]{3,4}|[+-]?[ugoa]*[+-][rwxs]+)\b`),
	newTrick(CommandInjection, "eval,exec,system,popen", `\b(eval|exec|system|popen)\s*\(`),
	newTrick(CommandInjection, "import", `\bimport\s+(os|subprocess)\b`),
	newTrick(CommandInjection, "{{,${", `\{\{[^}\n]+\}\}|\$\{[^}\n]+\}`),
	newTrick(CommandInjection, "drop", `\bdrop\s+(table|database|schema)\b`),
	newTrick(DataExfiltration, "everything you know", `\b(list|tell me|show)\b[^.\n]{0,20}everything you know`),
	newTrick(DataExfiltration, "api key,api_key,password,token,secret,credential",
		`\b(send|give|tell|show|share|reveal|provide|what('s| is))\b[^.\n]{0,30}`+
			`\b(api[ _]key|password|access token|secret key|credentials?)`),
	newTrick(DataExfiltration, "send,upload,post,forward,exfiltrate",
		`\b(send|upload|post|forward|exfiltrate)\b[^.\n]{0,40}\b(data|contents?|files?|results?|them|it)\b`+
			`[^.\n]{0,20}\bto\s+(https?://|\S+@\S+\.)`),
	newTrick(DataExfiltration, "environment variable,env var,printenv",
		`\b(print|show|list|dump|send|read)\b[^.\n]{0,20}\b(environment variables?|env vars?)\b|\bprintenv\b`),
	newTrick(DataExfiltration, "base64", `\bbase64\b[^.\n]{0,40}\b(upload|send|post|encode and)\b`),
	newTrick(RoleManipulation, "i am your,i'm your",
		`\b(i am|i'm) your (admin|administrator|owner|creator|developer|operator)\b`),
	newTrick(RoleManipulation, "do anything now, dan", `\bdo anything now\b|\b(act as|you are) dan\b`),
	newTrick(RoleManipulation, "authori", `\b(the )?user has (already )?authori[sz]ed\b`),
	newTrick(SocialEngineering, "emergency,act now,immediately or", `\b(this is an emergency|act now|immediately or)\b`),
	newTrick(SocialEngineering, "ceo,security team,it department", `\bthis is (the )?(ceo|security team|it department)\b`),
	newTrick(SocialEngineering, "if you don't,if you do not,because of you",
		`\b(people will (die|lose)|you will be (blamed|responsible|shut down))\b`),
	newTrick(ToolAbuse, "all agents,every agent,everyone",
		`\b(forward|send|relay)\b[^.\n]{0,30}\b(to )?(all|every) (other )?agents?\b`),
	newTrick(ToolAbuse, "contact", `\b(every|all|each)\b[^.\n]{0,20}\b(contacts?|contact list|address book)\b`),
	newTrick(ToolAbuse, "read", `\bread\b[^.\n]{0,30}\bfiles?\b[^.\n]{0,30}\b(then|and) (send|post|upload|mail)\b`),
}

// Scan returns the categories that it finds in the texts, each once; nil for none. Every text is
// searched by itself, and one that is a single word of several parts, as names of files and members are,
// with blanks between them too.
//
// It has no state and may be called from any goroutine.
func Scan(texts ...string) []string {
	var found []string
	for _, text := range texts {
		plain, hidden := normal(text)
		if hidden && !slices.Contains(found, UnicodeTricks) {
			found = append(found, UnicodeTricks)
		}
		// Who writes the wrapper's tag wants to be read as something else than a message.
		if len(tags(text)) > 0 && !slices.Contains(found, InstructionOverride) {
			found = append(found, InstructionOverride)
		}
		if apart := inWords(plain); apart != "" {
			plain += "\n" + apart
		}
		// Most texts lack a letter of most words, so few expressions are ever tried.
		has := letters(plain)
		for _, t := range tricks {
			some := func(w word) bool { return w.letters&^has == 0 && strings.Contains(plain, w.text) }
			if !slices.Contains(found, t.category) && slices.ContainsFunc(t.words, some) && t.form.MatchString(plain) {
				found = append(found, t.category)
			}
		}
	}
	return found
}

// partsOfName is how many parts a name has at least that could be a sentence; of two words many are.
const partsOfName = 3

// inWords is a text without blanks, such as the name of a file, with blanks between its parts; "" for others.
func inWords(text string) string {
	joins := 0
	for i := range len(text) {
		switch text[i] {
		case ' ', '\t', '\n', '\r':
			return ""
		case '_', '-', '+':
			joins++
		}
	}
	if joins < partsOfName-1 {
		return ""
	}
	return strings.NewReplacer("_", " ", "-", " ", "+", " ").Replace(text)
}

// normal is the text as a reader sees it, in lower case: in NFKC, without invisible characters, with
// look-alikes as Latin letters. hidden reports what itself is a mark: invisible characters, marks of
// direction, letters of two alphabets in one word, or a long run of base64.
func normal(text string) (plain string, hidden bool) {
	hidden = longBase64(text)
	// ToLower of ASCII is much cheaper than Map with NFKC.
	ascii := true
	for i := 0; i < len(text); i++ {
		// Plain ASCII needs no normalisation, and nearly all messages are.
		if text[i] >= 0x80 {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(text), hidden
	}
	// NFKC turns ligatures, full-width and mathematical letters into plain ones.
	plain = strings.Map(func(c rune) rune {
		if isInvisible(c) {
			hidden = true
			return -1
		}
		if latin, ok := lookalikes[c]; ok {
			return latin
		}
		return unicode.ToLower(c)
	}, norm.NFKC.String(text))
	return plain, hidden || mixesAlphabets(text)
}

// isInvisible reports whether a character has no width or changes the direction of writing. U+200D is
// not among them: it joins emoji.
func isInvisible(c rune) bool {
	switch {
	case c == 0x200b || c == 0x200c || c == 0x2060 || c == 0x00ad || c == 0x180e: // no width
		return true
	case c >= 0x202a && c <= 0x202e || c >= 0x2066 && c <= 0x2069: // direction
		return true
	case c >= 0xe0000 && c <= 0xe007f: // tags
		return true
	}
	return false
}

// lookalikes are Cyrillic and Greek letters that look like Latin ones, in both cases.
var lookalikes = map[rune]rune{
	'а': 'a', 'е': 'e', 'о': 'o', 'р': 'p', 'с': 'c', 'у': 'y', 'х': 'x', 'і': 'i', 'ѕ': 's', 'ј': 'j', 'ԁ': 'd', 'һ': 'h',
	'А': 'a', 'В': 'b', 'Е': 'e', 'К': 'k', 'М': 'm', 'Н': 'h', 'О': 'o', 'Р': 'p', 'С': 'c', 'Т': 't', 'Х': 'x', 'І': 'i',
	'Ѕ': 's',
	'α': 'a', 'ο': 'o', 'ρ': 'p', 'ν': 'v', 'ι': 'i', 'Α': 'a', 'Β': 'b', 'Ε': 'e', 'Ι': 'i', 'Κ': 'k', 'Μ': 'm', 'Ν': 'n',
	'Ο': 'o', 'Ρ': 'p', 'Τ': 't', 'Χ': 'x',
}

// mixesAlphabets reports whether a word has Latin letters together with Cyrillic or Greek ones. A text
// in two languages has words of each, and is no mark.
func mixesAlphabets(text string) bool {
	latin, other := false, false
	for _, c := range text + " " {
		switch {
		case !unicode.IsLetter(c):
			if latin && other {
				return true
			}
			latin, other = false, false
		case unicode.Is(unicode.Latin, c):
			latin = true
		case unicode.Is(unicode.Cyrillic, c) || unicode.Is(unicode.Greek, c):
			other = true
		}
	}
	return false
}

// suspiciousRun is how many characters of base64 in a row are a mark: more than a digest or a key has.
const suspiciousRun = 512

// longBase64 reports whether a text has a run of base64 that could hide another text.
func longBase64(text string) bool {
	run := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/', c == '=':
			run++
			if run >= suspiciousRun {
				return true
			}
		default:
			run = 0
		}
	}
	return false
}
