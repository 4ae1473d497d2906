package arch

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	// A file of code longer than maxLines has to be split; one longer than crowdedLines is
	// reported.
	maxLines     = 500
	crowdedLines = 300
)

// oversized are files that may be longer than maxLines, and why.
var oversized = map[string]string{}

// code reports whether a file holds code written by hand.
func code(name string) bool {
	return slices.Contains([]string{".go", ".c", ".h", ".sh"}, path.Ext(name))
}

// Sizes lists the files of code below root that are too long, and those longer than crowdedLines.
func Sizes(root string) (tooLong, crowded []string, err error) {
	all, err := files(root, code)
	if err != nil {
		return nil, nil, err
	}
	for name, text := range all {
		lines := bytes.Count(text, []byte("\n"))
		line := fmt.Sprintf("%s: %d lines", name, lines)
		switch {
		case generated(text) || oversized[name] != "" || path.Base(name) == "vmlinux.h":
		case lines > maxLines:
			tooLong = append(tooLong, line)
		case lines > crowdedLines:
			crowded = append(crowded, line)
		}
	}
	return tooLong, crowded, nil
}

// unwanted are words that no file of the project may hold. The patterns are written so that they do
// not find themselves.
var unwanted = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(^|[\s"'=:(,` + "`" + `])/(work|root|home)/[A-Za-z0-9]`),
		"a path of one machine"},
	{regexp.MustCompile(`\b(proxy|sum|vuln)\.(golang\.org|go\.dev)\b|` +
		`\bregistry\.[a-z]+\.(org|io|com)\b|\bpypi\.org\b|\b(deb|security)\.debian\.org\b`),
		"the name of a package registry"},
	{regexp.MustCompile(`(?i)\bissue (no\. ?|#)?[0-9]+\b`), "an issue number: say what is meant"},
	{regexp.MustCompile(`[\x{2010}-\x{2015}\x{2018}-\x{201f}\x{2022}-\x{2026}` +
		`\x{2190}-\x{21ff}\x{00a0}]`), "punctuation beyond ASCII"},
}

// text reports whether a file is meant for reading. Recorded input and sums are not.
func text(name string) bool {
	if strings.Contains("/"+name, "/testdata/fuzz/") || path.Base(name) == "go.sum" {
		return false
	}
	ext := path.Ext(name)
	return code(name) || ext == "" ||
		slices.Contains([]string{".md", ".txt", ".txtar", ".toml", ".service", ".mod", ".rules",
			".conf", ".conflist", ".json", ".yml", ".yaml", ".js", ".css", ".html", ".spec"}, ext)
}

// Words lists the lines below root that hold something unwanted.
func Words(root string) ([]string, error) {
	all, err := files(root, text)
	if err != nil {
		return nil, err
	}
	var found []string
	for name, content := range all {
		if bytes.IndexByte(content, 0) >= 0 || copied(name, content) {
			continue // a program, a recording, or not ours
		}
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			for _, u := range unwanted {
				if hit := u.pattern.FindString(line); hit != "" {
					found = append(found, fmt.Sprintf("%s:%d: %q: %s", name, number,
						strings.TrimSpace(hit), u.why))
				}
			}
		}
	}
	return found, nil
}
