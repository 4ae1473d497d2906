package rule

import "strings"

// token is a word of a line. White space after a comma belongs to no word ("80, 443" is one word),
// so a byte's column can be further right than the byte's index tells. Then cols has the column of
// each byte.
type token struct {
	text string
	col  int // column of the first byte, from 1
	end  int // column after the last byte
	cols []int
}

// sub returns the part text[i:j] as a token of its own.
func (t token) sub(i, j int) token {
	s := token{text: t.text[i:j], col: t.col + i, end: t.col + j}
	if t.cols == nil {
		return s
	}
	s.cols = t.cols[i:j]
	switch {
	case i < j:
		s.col, s.end = t.cols[i], t.cols[j-1]+1
	case i < len(t.cols):
		s.col, s.end = t.cols[i], t.cols[i]
	default:
		s.col, s.end = t.end, t.end
	}
	return s
}

// split cuts the token at every comma.
func (t token) split() []token {
	var parts []token
	from := 0
	for i := 0; i <= len(t.text); i++ {
		if i == len(t.text) || t.text[i] == ',' {
			parts = append(parts, t.sub(from, i))
			from = i + 1
		}
	}
	return parts
}

// line is a line cut into words.
type line struct {
	file    string
	number  int
	text    string
	words   []token
	comment *token // what follows "//", trimmed; nil if there is none
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' }

// scan cuts a line into words. '#' ends the line, "//" at the start of a word begins the comment of
// the rule. A brace or parenthesis at the start of a word is a word of its own; inside a word it
// belongs to it, up to its partner. The words are appended to into[:0], which may be nil.
func scan(file string, number int, text string, into []token) line {
	l := line{file: file, number: number, text: text, words: into[:0]}
	i := 0
	for i < len(text) {
		switch c := text[i]; {
		case isSpace(c):
			i++
		case c == '#':
			return l
		case strings.HasPrefix(text[i:], "//"):
			l.comment = comment(text, i+2)
			return l
		case strings.IndexByte("{}()", c) >= 0,
			c == '!' && i+1 < len(text) && (text[i+1] == '{' || text[i+1] == '('):
			l.words = append(l.words, token{text: text[i : i+1], col: i + 1, end: i + 2})
			i++
		default:
			var w token
			w, i = word(text, i)
			l.words = append(l.words, w)
		}
	}
	return l
}

// word cuts the word that starts at from and returns it and the index after it.
func word(text string, from int) (token, int) {
	depth, i := 0, from
	var cols []int // made at the first white space inside
	var kept []byte
	for i < len(text) {
		c := text[i]
		if isSpace(c) {
			rest := strings.TrimLeft(text[i:], " \t")
			if !joins(text[i-1], rest, depth) || strings.HasPrefix(rest, "//") ||
				strings.HasPrefix(rest, "#") {
				break
			}
			if cols == nil {
				kept = append(kept, text[from:i]...)
				for k := range kept {
					cols = append(cols, from+k+1)
				}
			}
			for i < len(text) && isSpace(text[i]) {
				i++
			}
			continue
		}
		if c == '#' {
			break
		}
		if c == '{' || c == '(' {
			depth++
		}
		if c == '}' || c == ')' {
			if depth == 0 {
				break
			}
			depth--
		}
		if cols != nil {
			kept, cols = append(kept, c), append(cols, i+1)
		}
		i++
	}
	if cols == nil {
		return token{text: text[from:i], col: from + 1, end: i + 1}, i
	}
	return token{text: string(kept), col: from + 1, end: cols[len(cols)-1] + 1, cols: cols}, i
}

// joins reports whether white space behind a byte belongs to no word: behind a comma and, inside
// braces, at either side of a comma or a brace. Elsewhere {1 2} would become {12}.
func joins(before byte, rest string, depth int) bool {
	return before == ',' || depth > 0 && (before == '{' || before == '(' ||
		rest != "" && strings.IndexByte(",})", rest[0]) >= 0)
}

// comment returns the text from index from on without white space around it.
func comment(text string, from int) *token {
	to := len(text)
	for from < to && isSpace(text[from]) {
		from++
	}
	for to > from && isSpace(text[to-1]) {
		to--
	}
	return &token{text: text[from:to], col: from + 1, end: to + 1}
}
