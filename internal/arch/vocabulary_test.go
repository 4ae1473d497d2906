package arch

import (
	"strings"
	"testing"
)

func TestVocabularyFindsEveryWord(t *testing.T) {
	found, err := Vocabulary("testdata/words")
	expect(t, found, err,
		`twin/room.go: file name with "twin"`, `twin/room.go: file name with "room"`,
		`twin/room.go:1: "twin"`, `twin/room.go:2: "twin"`,
		`twin/room.go:4: "room"`, `twin/room.go:4: "says whether"`, `twin/room.go:4: "door"`,
		`twin/room.go:5: "room"`, `twin/room.go:5: "hatched"`, `twin/room.go:5: "heir"`,
		`twin/room.go:7: "twin"`, `twin/room.go:7: "door"`, `twin/room.go:7: "is no door"`,
		`twin/room.go:8: "is told"`, `twin/room.go:9: "twin"`, `twin/room.go:9: "door"`,
		`twin/room.go:11: "nobody"`,
		`page.md:1: "conversation"`, `page.md:3: "judge"`, `page.md:3: "long way"`,
		`page.md:3: "somebody"`, `page.md:3: "goes on"`, `page.md:4: "anew"`,
		`lib.h:1: "embryo"`, `lib.h:2: "embryonic"`, `lib.h:3: "recall"`, `lib.h:3: "be it"`,
		`script.sh:2: "treaty"`, `script.sh:2: "sounding"`)
	for line, want := range map[string]int{
		"// it went on, and was not told": 2, "// pipes that are no pipe": 1,
		"// there were no pods, and they are no longer there": 0,
	} {
		if hits := lineWords("a.go", "", line); len(hits) != want {
			t.Errorf("%s: %q", line, hits)
		}
	}
	for word := range forbidden {
		hits := lineWords("a.go", "", "\tx := get"+strings.ToUpper(word[:1])+word[1:]+"(HTTP)")
		if len(hits) != 1 {
			t.Errorf("%s in an identifier: %q", word, hits)
		}
	}
}

func TestColumnsFindsWideLines(t *testing.T) {
	found, err := Columns("testdata/wide")
	expect(t, found, err, "code.go:4: 101 columns", "code.go:5: 102 columns",
		"code.go:12: ", "code_test.go:5: 101 columns", "code.h:1: 106 columns",
		"script.sh:1: 101 columns", "page.md:2: 101 columns", "page.md:7: 101 columns")
}
