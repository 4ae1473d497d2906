// Man makes the manual pages: docs/fw-show.md becomes weir-fw-show.1, with the usage and the flags
// that the binary prints, docs/settings.md weir.toml.5, docs/rules.md weir-rules.5.
//
//	go run ./man WEIR DOCS OUT VERSION
package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// special are the names and sections of the pages that are not about a command.
var special = map[string]string{"settings": "weir.toml.5", "rules": "weir-rules.5",
	"metrics": "weir-metrics.7", "tutorial": "weir-tutorial.7", "glossary": "weir-glossary.7",
	"overlay": "weir-overlay.7", "cluster": "weir-cluster.7",
	"docker": "weir-docker.7", "store-metrics": "weir-store-metrics.7"}

// skipped are the pages that are not manual pages.
var skipped = map[string]bool{"benchmarks": true}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: man WEIR DOCS OUT VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(weir, docs, out, version string) error {
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
		name := cmp.Or(special[base], "weir-"+base+".1")
		page := manual(string(text))
		if special[base] == "" {
			if page, err = manualOfCommand(weir, base, string(text)); err != nil {
				return err
			}
		}
		if err := write(out, name, version, page); err != nil {
			return err
		}
		index = append(index, "**"+strings.TrimSuffix(name, filepath.Ext(name))+"**("+
			filepath.Ext(name)[1:]+")")
	}
	help, err := exec.Command(weir, "help").Output()
	if err != nil {
		return err
	}
	return write(out, "weir.1", version, "firewall and network for hosts and containers\n\n"+
		"# SYNOPSIS\n\n"+block(string(help))+
		"\n# DESCRIPTION\n\nRules in ipfw's grammar, enforced "+
		"in the kernel, in user space and offline on captures.\n\n# SEE ALSO\n\n"+
		strings.Join(index, ", ")+"\n")
}

// manual is a page of docs/ with its first sentence as name. The title is in the file's name.
func manual(text string) string {
	_, text, _ = strings.Cut(text, "\n")
	brief, _, _ := strings.Cut(strings.Join(strings.Fields(text), " "), ". ")
	return strings.ReplaceAll(brief, "`", "") + "\n\n# DESCRIPTION\n" + text
}

var usageOfPage = regexp.MustCompile(`^# .*\n\n(    .*\n)+`)

// manualOfCommand puts the usage and the flags, as the binary prints them, around the page of a
// command.
func manualOfCommand(weir, base, text string) (string, error) {
	args := append([]string{"help"}, strings.SplitN(base, "-", 2)...)
	help, err := exec.Command(weir, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", weir, strings.Join(args, " "), err)
	}
	usage, rest, _ := strings.Cut(strings.TrimPrefix(string(help), "usage: "), "\n\n")
	brief, flags, _ := strings.Cut(rest, ".\n\n")
	return brief + "\n\n# SYNOPSIS\n\n" + block(usage) + "\n# DESCRIPTION\n\n" +
		usageOfPage.ReplaceAllString(text, "") + "\n# OPTIONS\n\n" + block(flags), nil
}

// picture is one on a line of its own, which a terminal cannot show.
var picture = regexp.MustCompile(`(?m)^!\[.*\]\(.*\)\n+`)

// block is text as it stands.
func block(text string) string { return "```\n" + strings.TrimRight(text, "\n") + "\n```\n" }

// write makes a page of Markdown that begins with its brief description.
func write(out, name, version, page string) error {
	title, section := strings.TrimSuffix(name, filepath.Ext(name)), filepath.Ext(name)[1:]
	dir := filepath.Join(out, "man"+section)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	head := fmt.Sprintf("%s %s \"\" \"weir %s\" Weir\n==\n\n# NAME\n\n%s - ",
		strings.ToUpper(title), section, version, title)
	page = picture.ReplaceAllString(page, "")
	return os.WriteFile(filepath.Join(dir, name), md2man.Render([]byte(head+page)), 0o644)
}
