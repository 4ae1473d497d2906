package arch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxWords is how many words a sentence of a comment may have.
const maxWords = 30

// sentenceEnd is what ends a sentence, or an element of a list.
var sentenceEnd = regexp.MustCompile(`[.!?;:]["')]*(\s+|$)`)

// comment is a line that holds nothing but a comment.
var comment = regexp.MustCompile(`^\s*//( ?)(.*)`)

// commented reports whether the sentences of a file's comments are counted.
func commented(name string) bool {
	return slices.Contains([]string{".go", ".c", ".h"}, path.Ext(name)) &&
		path.Base(name) != "vmlinux.h" && !slices.Contains(strings.Split(name, "/"), "testdata")
}

// Sentences lists the sentences with more than maxWords words in the comments of Go and C below
// root.
func Sentences(root string) ([]string, error) {
	all, err := files(root, commented)
	if err != nil {
		return nil, err
	}
	var found []string
	for name, content := range all {
		if !generated(content) {
			for _, s := range longSentences(string(content)) {
				found = append(found, name+":"+s)
			}
		}
	}
	return found, nil
}

// longSentences returns the long sentences of code, each with the line where its paragraph begins.
// Text that is indented in a comment, and directives, are in no sentence.
func longSentences(code string) (found []string) {
	var paragraph []string
	number, first := 0, 0
	end := func() {
		for _, s := range sentenceEnd.Split(strings.Join(paragraph, " "), -1) {
			if n := countWords(s); n > maxWords {
				found = append(found, fmt.Sprintf("%d: %d words, at most %d: %s", first, n,
					maxWords, s))
			}
		}
		paragraph = nil
	}
	for line := range strings.Lines(code + "\n\n") {
		number++
		m := comment.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil || m[2] == "" || m[1] == "" || m[2][0] == ' ' || m[2][0] == '\t' {
			end()
			continue
		}
		if paragraph == nil {
			first = number
		}
		paragraph = append(paragraph, m[2])
	}
	return found
}

// countWords counts what has a letter or a digit.
func countWords(sentence string) (n int) {
	for word := range strings.FieldsSeq(sentence) {
		if strings.ContainsFunc(word, func(r rune) bool {
			return unicode.IsLetter(r) || unicode.IsDigit(r)
		}) {
			n++
		}
	}
	return n
}
