// Package similar finds the known word that is most similar to a misspelt one.
package similar

// Word is the word that t was meant to be, "" if none is close.
func Word(t string, words ...string) string {
	best, least := "", 2*(len(t)/3+1)
	for _, w := range words {
		if w == "" {
			continue
		}
		d := 2 * distance(t, w)
		if t != "" && w[0] != t[0] {
			d++ // the first letter is rarely the wrong one
		}
		if d < least || d == least && best != "" && w < best {
			best, least = w, d
		}
	}
	return best
}

// distance is the number of single-byte edits, neighbours exchanged counting as one, that turn a
// into b; long words are far from everything.
func distance(a, b string) int {
	if len(a) > 32 || len(b) > 32 {
		return 64
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	var older []int
	for i := 1; i <= len(a); i++ {
		older, before, row = before, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(before[j]+1, row[j-1]+1, before[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
