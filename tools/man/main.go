// Man converts the pages in docs/ to manual pages: docs/fw-show.md becomes weir-fw-show.1,
// docs/settings.md weir.toml.5, docs/rules.md weir-rules.5. It supports the Markdown of these
// pages: headings, paragraphs, lists, tables, code.
//
//	go run ./man DOCS OUT VERSION
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// special are the names and sections of the pages that are not about a verb.
var special = map[string]string{"settings": "weir.toml.5", "rules": "weir-rules.5",
	"metrics": "weir-metrics.7", "tutorial": "weir-tutorial.7"}

// skipped are the pages that are not manual pages.
var skipped = map[string]bool{"benchmarks": true}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: man DOCS OUT VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(docs, out, version string) error {
	pages, err := filepath.Glob(filepath.Join(docs, "*.md"))
	if err != nil {
		return err
	}
	var index []string
	for _, path := range pages {
		base := strings.TrimSuffix(filepath.Base(path), ".md")
		if skipped[base] {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := "weir-" + base + ".1"
		if s, ok := special[base]; ok {
			name = s
		}
		if err := write(out, name, convert(name, version, string(text))); err != nil {
			return err
		}
		index = append(index, strings.TrimSuffix(name, filepath.Ext(name))+"("+
			filepath.Ext(name)[1:]+")")
	}
	overview := "# weir\n\nWeir is a firewall and a network for containers and hosts: rules in " +
		"ipfw's grammar, enforced in the kernel, in user space and " +
		"offline on captures. `weir help` lists the verbs; each has a manual page.\n\n" +
		"## See also\n\n" + strings.Join(index, ", ") + "\n"
	return write(out, "weir.1", convert("weir.1", version, overview))
}

func write(out, name string, page []byte) error {
	dir := filepath.Join(out, "man"+name[len(name)-1:])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), page, 0o644)
}

// convert turns a page into roff.
func convert(name, version, text string) []byte {
	var b bytes.Buffer
	title, section := strings.TrimSuffix(name, name[len(name)-2:]), name[len(name)-1:]
	fmt.Fprintf(&b, ".TH %q %q \"\" %q \"Weir\"\n", strings.ToUpper(title), section, "weir "+
		version)
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	fenced, block, item := false, false, false
	end := func() {
		if block {
			b.WriteString(".fi\n.RE\n")
			block = false
		}
	}
	begin := func() {
		if !block {
			b.WriteString(".PP\n.RS 4\n.nf\n")
			block = true
		}
	}
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced = !fenced; fenced {
				begin()
			} else {
				end()
			}
		case fenced:
			b.WriteString(escape(line) + "\n")
		case strings.HasPrefix(line, "    ") && !item:
			begin()
			b.WriteString(escape(line[4:]) + "\n")
		case strings.HasPrefix(line, "|"):
			if strings.Trim(line, "|-: ") == "" {
				continue
			}
			begin()
			b.WriteString(escape(strings.ReplaceAll(strings.Trim(line, "| "), "`", "")) + "\n")
		case line == "":
			if block && i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ") {
				b.WriteString("\n")
				continue
			}
			end()
			item = false
			b.WriteString(".PP\n")
		case strings.HasPrefix(line, "# "):
			fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(title), inline(brief(lines)))
			b.WriteString(".SH DESCRIPTION\n")
		case strings.HasPrefix(line, "#"):
			end()
			item = false
			fmt.Fprintf(&b, ".SH %s\n", strings.ToUpper(inline(strings.TrimLeft(line, "# "))))
		case strings.HasPrefix(line, "* "), strings.HasPrefix(line, "- "):
			end()
			item = true
			b.WriteString(".IP \\(bu 2\n" + guard(inline(line[2:])) + "\n")
		default:
			end()
			b.WriteString(guard(inline(strings.TrimSpace(line))) + "\n")
		}
	}
	end()
	return b.Bytes()
}

// brief is the first sentence of a page.
func brief(lines []string) string {
	var words []string
	for _, line := range lines[1:] {
		if line == "" && words != nil {
			break
		}
		if line != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "|") &&
			!strings.HasPrefix(line, "`") {
			words = append(words, line)
		}
	}
	text := strings.Join(words, " ")
	if at := strings.IndexAny(text, ".:;"); at > 0 {
		text = text[:at]
	}
	return text
}

// escape escapes the characters that are special in roff.
func escape(s string) string {
	s = strings.ReplaceAll(s, `\`, `\e`)
	s = strings.ReplaceAll(s, "-", `\-`)
	return guard(s)
}

// guard keeps roff from reading a line as a request.
func guard(s string) string {
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}

// inline sets code in bold.
func inline(s string) string {
	var b strings.Builder
	for i, part := range strings.Split(s, "`") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, `\`, `\e`), "-", `\-`)
		if i%2 == 1 {
			part = `\fB` + part + `\fR`
		}
		b.WriteString(part)
	}
	return b.String()
}
