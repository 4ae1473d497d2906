package arch

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// maxColumns is how wide a line may be. A tab counts tabColumns.
	maxColumns = 100
	tabColumns = 4
	// dataColumns is how long a string of a test is when it counts as test data.
	dataColumns = 60
)

// wrapped reports whether the lines of a file have to fit into maxColumns.
func wrapped(name string) bool {
	script := path.Ext(name) == "" &&
		(strings.HasPrefix(name, "scripts/") || strings.HasPrefix(name, "dist/"))
	return (code(name) || script ||
		slices.Contains([]string{".md", ".js", ".css", ".html"}, path.Ext(name))) &&
		path.Base(name) != "vmlinux.h" && !strings.Contains(name, ".min.") &&
		!slices.Contains(strings.Split(name, "/"), "testdata")
}

// Columns lists the lines of code, scripts and Markdown below root that are wider than maxColumns.
// Raw strings, test data, compiler directives, lines with a URL and, in Markdown, tables, code,
// comments and third headings may be wider: they cannot be wrapped.
func Columns(root string) ([]string, error) {
	all, err := files(root, wrapped)
	if err != nil {
		return nil, err
	}
	var found []string
	for name, content := range all {
		if generated(content) {
			continue
		}
		may := mayBeWide(name, content)
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			if n := columns(line); n > maxColumns && !may[number] && !directive(line) &&
				!strings.Contains(line, "://") {
				found = append(found, fmt.Sprintf("%s:%d: %d columns, at most %d", name, number, n,
					maxColumns))
			}
		}
	}
	return found, nil
}

func columns(line string) int {
	line = strings.TrimRight(line, "\r\n")
	return utf8.RuneCountInString(line) + strings.Count(line, "\t")*(tabColumns-1)
}

// directive reports whether a line is a comment that a tool reads as a whole.
func directive(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "//go:") || strings.HasPrefix(line, "# shellcheck")
}

// mayBeWide returns the lines of a file that nothing can wrap.
func mayBeWide(name string, content []byte) map[int]bool {
	switch path.Ext(name) {
	case ".go":
		return wideStrings(content, strings.HasSuffix(name, "_test.go"))
	case ".md":
		return widePageLines(content)
	}
	return nil
}

// wideStrings returns the lines with raw strings, and in a test those with long strings.
func wideStrings(content []byte, test bool) map[int]bool {
	may := map[int]bool{}
	set := token.NewFileSet()
	file := set.AddFile("", set.Base(), len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return may
		}
		if tok != token.STRING || lit[0] != '`' && (!test || len(lit) <= dataColumns) {
			continue
		}
		first := file.Line(pos)
		for n := range strings.Count(lit, "\n") + 1 {
			may[first+n] = true
		}
	}
}

// widePageLines returns the lines of Markdown that are quoted, rows of tables, comments or
// headings of commands with all their arguments.
func widePageLines(content []byte) map[int]bool {
	may := quotedLines(content)
	number := 0
	for line := range bytes.Lines(content) {
		number++
		for _, begin := range []string{"|", "<!--", "### "} {
			may[number] = may[number] || bytes.HasPrefix(line, []byte(begin))
		}
	}
	return may
}

// quotedLines returns the lines of Markdown that are code: fenced or indented by four blanks.
func quotedLines(content []byte) map[int]bool {
	quoted := map[int]bool{}
	number, fenced := 0, false
	for line := range bytes.Lines(content) {
		number++
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("```")) {
			fenced = !fenced
		}
		quoted[number] = fenced || bytes.HasPrefix(line, []byte("    "))
	}
	return quoted
}
