package arch

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// forbidden are words that the project has a standard term for, or that plain English does without,
// each with what to write instead. They are searched in prose, in the parts of identifiers and in
// file names.
var forbidden = map[string]string{
	"house": "project", "houses": "project",
	"room": "package, or capacity", "rooms": "packages",
	"hall": "composition root", "halls": "composition root",
	"door": "the only importer", "doors": "the only importers",
	"treaty": "conformance suite", "treaties": "conformance suite",
	"twin": "reference model, counterpart", "twins": "reference models, counterparts",
	"judge": "evaluate, filter", "judges": "evaluates, filters", "judged": "evaluated, filtered",
	"judging": "evaluating, filtering", "judgement": "verdict, evaluation",
	"judgements": "verdicts", "judgment": "verdict, evaluation", "misjudged": "wrong",
	"conversation": "flow, connection, exchange", "conversations": "flows, connections, exchanges",
	"embryo": "half-open", "embryos": "half-open", "embryonic": "half-open",
	"grown": "established",
	"hatch": "promote", "hatched": "promoted", "hatches": "promotes", "hatching": "promoting",
	"heir": "successor", "heirs": "successors",
	"recall": "verdict cache", "recalls": "verdict cache", "recalled": "cached",
	"sounding": "PMTU probe", "soundings": "PMTU probes", "sounded": "probed",
	"thief": "attacker, stolen key", "thieves": "attackers",
	"liar": "attacker, forger", "deaf": "unresponsive, stalled", "mortal": "short-lived",
	"brake": "backoff", "pulse": "heartbeat", "greet": "hello, reply", "greeted": "replied",
	"converse": "exchange, serve", "fate": "effect, result", "fates": "effects, results",
	"unheard": "without an answer", "stubborn": "refusing", "hasty": "early",
	"whoever": "name who", "nobody": "no X", "somebody": "name who", "anew": "again",
	"thus": "so", "hence": "so", "whence": "from where", "likewise": "also",
	"thereof": "of it", "wherein": "in which", "shall": "must, is to",
	"patience": "timeout", "impatience": "short wait", "attentive": "what it waits for",
	"founding": "init", "owed": "pending, unsent", "crowd": "many clients",
	"crowds": "many clients", "lane": "worker, part", "lanes": "workers, parts",
}

// phrases are forbidden expressions of several words.
var phrases = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{phrase("long way"), "slow path"},
	{phrase("short way"), "fast path"},
	{phrase("(is|are|was|were|be|been|not) told"), "a verb of what happens"},
	{phrase("(goes|go|went|gone|going) on"), "continues, runs"},
	{phrase("be it"), "including, whether"},
	{phrase("in vain"), "what fails"},
	{phrase("the (rules|version) before (is|are|was|were|come|comes|came)"), "the previous ones"},
	{phrase("(tells|tell) of"), "reports"},
	{phrase("(says|say) whether"), "reports whether"},
}

func phrase(words string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(words, " ", `\s+`) + `\b`)
}

// isNo finds "X is no Y". "there is no Y" and "is no longer" are plain English.
var isNo = regexp.MustCompile(`(?i)(\w*)\s*\b(is|are|was|were) no (\w+)`)

// codeSpan is code in a line of Markdown, which may use any word.
var codeSpan = regexp.MustCompile("`[^`]*`")

// homonym is a place where a forbidden word has another meaning.
type homonym struct{ file, word, why string }

var homonyms = []homonym{
	{"internal/arch/vocabulary.go", "*", "the list itself"},
	{"internal/arch/vocabulary_test.go", "*", "what the list has to find"},
	{"bpf/lib/kernel.h", "room", "a helper of the kernel, bpf_skb_adjust_room"},
	{"bpf/lib/reply.h", "room", "the same"},
	{"overlay/internal/device/device.go", "thus", "a comment of wireguard-go"},
	{"test/boot_test.go", "nobody", "a user of the system"},
	{"test/boot_faults_test.go", "nobody", "a user of the system"},
}

// prose reports whether the words of a file are checked.
func prose(name string) bool {
	base := path.Base(name)
	return text(name) && base != "vmlinux.h" && base != "LICENSE" && path.Ext(name) != ".mod"
}

// Vocabulary lists the forbidden words below root, in the text and in the names of files.
func Vocabulary(root string) ([]string, error) {
	all, err := files(root, prose)
	if err != nil {
		return nil, err
	}
	var found []string
	for name, content := range all {
		for _, word := range parts(name) {
			if instead := forbidden[word]; instead != "" && !isHomonym(name, word) {
				found = append(found, fmt.Sprintf("%s: file name with %q: %s", name, word, instead))
			}
		}
		if generated(content) || bytes.IndexByte(content, 0) >= 0 {
			continue
		}
		number, before, page := 0, "", path.Ext(name) == ".md"
		quoted := map[int]bool{}
		if page {
			quoted = quotedLines(content)
		}
		for line := range strings.Lines(string(content)) {
			if number++; quoted[number] {
				continue
			}
			if page {
				line = codeSpan.ReplaceAllString(line, "``")
			}
			for _, hit := range lineWords(name, before, line) {
				found = append(found, fmt.Sprintf("%s:%d: %s", name, number, hit))
			}
			before = line
		}
	}
	return found, nil
}

// lineWords returns the forbidden words and phrases of one line. A phrase may begin in the line
// before.
func lineWords(name, before, line string) (found []string) {
	report := func(word, instead string) {
		if !isHomonym(name, strings.ToLower(word)) {
			found = append(found, fmt.Sprintf("%q: write %s", word, instead))
		}
	}
	for _, word := range parts(line) {
		if instead := forbidden[word]; instead != "" {
			report(word, instead)
		}
	}
	if from := strings.Fields(before); len(from) > 0 {
		line = from[len(from)-1] + " " + strings.TrimLeft(line, " \t/#*")
	}
	for _, p := range phrases {
		if hit := p.pattern.FindString(line); hit != "" {
			report(hit, p.instead)
		}
	}
	for _, m := range isNo.FindAllStringSubmatch(line, -1) {
		there := strings.EqualFold(m[1], "there")
		if !there && !slices.Contains([]string{"longer", "more", "less"}, strings.ToLower(m[3])) {
			report(m[2]+" no "+m[3], "is not a, there is no")
		}
	}
	return found
}

func isHomonym(name, word string) bool {
	return slices.ContainsFunc(homonyms, func(h homonym) bool {
		return h.file == name && (h.word == word || h.word == "*")
	})
}

// parts splits text into lower-case words: at everything but letters, and inside identifiers where
// a capital begins a word, as in roomFor, RoomFor and HTTPRoom.
func parts(s string) (words []string) {
	var word []rune
	end := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = word[:0]
		}
	}
	letters := []rune(s)
	for i, r := range letters {
		if !unicode.IsLetter(r) {
			end()
			continue
		}
		after := i > 0 && unicode.IsLower(letters[i-1])
		before := i > 0 && unicode.IsUpper(letters[i-1]) && i+1 < len(letters) &&
			unicode.IsLower(letters[i+1])
		if unicode.IsUpper(r) && (after || before) {
			end()
		}
		word = append(word, r)
	}
	end()
	return words
}
