package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// wrong returns an error of usage, exit status 2.
func (c *call) wrong(format string, args ...any) error {
	return usageError{what: c.command.name + ": " + fmt.Sprintf(format, args...),
		hint: c.cmd.UseLine()}
}

// emptyFlag returns an error for the first flag that was given with an empty value, as of a
// variable of a shell that is not set. Without its file, a proxy would admit everyone.
func (c *call) emptyFlag() (err error) {
	c.Visit(func(f *pflag.Flag) {
		empty := f.Value.Type() == "string" && f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			all := list.GetSlice()
			empty = len(all) == 0 || slices.Contains(all, "")
		}
		if empty && err == nil {
			err = c.wrong("the value of %s is empty", spelling(f))
		}
	})
	return err
}

// missingFlag returns an error for the first required flag that was not given.
func (c *call) missingFlag() (err error) {
	c.VisitAll(func(f *pflag.Flag) {
		if isRequired(f) && !f.Changed && err == nil {
			arg, text := pflag.UnquoteUsage(f)
			err = c.wrong("missing %s %s: %s", spelling(f), arg, text)
		}
	})
	return err
}

func isRequired(f *pflag.Flag) bool { return f.Annotations[cobra.BashCompOneRequiredFlag] != nil }

// spelling is the shortest form of a flag.
func spelling(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand
	}
	return "--" + f.Name
}

// flagUsage is the part of a usage line with the flags: "[-jq] -f FILE [--me ADDRESS]...".
func flagUsage(flags *pflag.FlagSet) string {
	letters, rest := "", ""
	flags.VisitAll(func(f *pflag.Flag) {
		arg, _ := pflag.UnquoteUsage(f)
		text := strings.TrimSpace(spelling(f) + " " + arg)
		switch {
		case f.Value.Type() == "bool" && f.Shorthand != "":
			letters += f.Shorthand
			return
		case f.Value.Type() == "bool" && f.DefValue == "true":
			text += "=false"
		}
		if !isRequired(f) {
			text = "[" + text + "]"
		}
		if t := f.Value.Type(); t == "stringArray" || t == "addresses" {
			text += "..."
		}
		rest += " " + text
	})
	if letters != "" {
		return "[-" + letters + "]" + rest
	}
	return rest
}

// wrongFlag is an error of the flags, with the flag that may be meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return unknownCommand(cmd, words)
	}
	e := usageError{what: err.Error(), hint: cmd.UseLine()}
	var unknown *pflag.NotExistError
	var lacking *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if letters := unknown.GetSpecifiedShortnames(); letters != "" {
			name = letters
		}
		e.what = "flag provided but not defined: -" + name
		e.hint = meant(similarFlags(cmd, name)) + e.hint
	case errors.As(err, &lacking):
		e.what = "flag needs an argument: " + spelling(lacking.GetFlag())
	case errors.As(err, &invalid):
		why := invalid.Unwrap().Error()
		_, notTime := time.ParseDuration(invalid.GetValue())
		if notTime != nil && invalid.GetFlag().Value.Type() == "duration" {
			why = noDuration(invalid.GetValue())
		}
		if number := new(strconv.NumError); errors.As(invalid, &number) {
			why = "not a whole number in its range"
		}
		e.what = fmt.Sprintf("invalid value %q for flag %s: %s", invalid.GetValue(),
			spelling(invalid.GetFlag()), why)
	}
	if !cmd.HasParent() {
		e.hint = strings.TrimSuffix(e.hint, cmd.UseLine()) + "weir help"
		return e
	}
	e.what = commandName(cmd) + ": " + e.what
	return e
}

// noDuration says what is wrong with a text that is to be a time.
func noDuration(text string) string {
	if _, err := strconv.ParseFloat(text, 32); err == nil {
		return fmt.Sprintf("it has no unit; write %ss", text)
	}
	return "not a time; write one like 30s or 5m"
}

// similarFlags returns the flags with a name like one that does not exist. Commands can be compared
// this way, so the names are put into some.
func similarFlags(cmd *cobra.Command, name string) []string {
	like := cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		like.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	all := like.SuggestionsFor(strings.TrimLeft(name, "-"))
	for i := range all {
		all[i] = "--" + all[i]
	}
	return all
}

// meant is the beginning of a hint: the words that may be meant, if any.
func meant(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(words, " or ") + "? "
}

// unknownCommand is the error for words of which the first is not a command of cmd. There may be
// none.
func unknownCommand(cmd *cobra.Command, words []string) error {
	e, prefix := usageError{hint: "weir help"}, ""
	if cmd.HasParent() {
		prefix = commandName(cmd) + ": "
		e.hint = "one of " + strings.Join(commandsBelow(cmd), " ")
	}
	if len(words) == 0 {
		e.what = prefix + "missing command"
		return e
	}
	e.what = fmt.Sprintf("%sunknown command %q", prefix, words[0])
	cmd.SuggestionsMinimumDistance = min(2, len(words[0])/2)
	similar := cmd.SuggestionsFor(words[0])
	for _, v := range commands() {
		if !cmd.HasParent() && strings.HasSuffix(v.name, " "+words[0]) {
			similar = append(similar, v.name)
		}
	}
	e.hint = meant(similar) + e.hint
	return e
}

// commandName is the name of a command without that of the binary.
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

func commandsBelow(cmd *cobra.Command) (names []string) {
	for _, v := range commands() {
		if first, second, two := strings.Cut(v.name, " "); two && first == cmd.Name() {
			names = append(names, second)
		}
	}
	return names
}

// help prints the usage of a command as an answer, or lists commands.
func help(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	if cmd.HasSubCommands() {
		listCommands(out, cmd)
		return
	}
	cmd.InheritedFlags() // adds them to Flags
	fmt.Fprintf(out, "%s\n\n%s.\n\n%s", brokenUsage(cmd.UseLine()), cmd.Short,
		flagTable(cmd.Flags()))
}

// helpWidth is how many columns a line of help has at most: those of a terminal of usual width.
const helpWidth = 80

// flagTable lists the flags with their texts. A flag that is wider than most has a line of its own,
// so that the texts of all others are not narrow.
func flagTable(flags *pflag.FlagSet) string {
	const most = 29
	var rows [][2]string
	width := 0
	for line := range strings.Lines(flags.FlagUsages()) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		flag, text, _ := strings.Cut(line[indent:], "   ")
		flag = line[:indent] + flag
		rows = append(rows, [2]string{flag, strings.TrimSpace(text)})
		if len(flag) <= most {
			width = max(width, len(flag))
		}
	}
	var out strings.Builder
	for _, row := range rows {
		line, indent := row[0], strings.Repeat(" ", width+3)
		if len(line) > most {
			out.WriteString(line + "\n")
			line = ""
		}
		line = fmt.Sprintf("%-*s", len(indent), line)
		for _, word := range strings.Fields(row[1]) {
			if len(line)+len(word) > helpWidth {
				out.WriteString(strings.TrimRight(line, " ") + "\n")
				line = indent
			}
			line += word + " "
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// brokenUsage is a usage line in lines of at most helpWidth columns. A flag stays with its value.
func brokenUsage(usage string) string {
	const first, indent = "usage: ", "           "
	var parts []string
	depth, joins := 0, false
	for word := range strings.FieldsSeq(usage) {
		if depth > 0 || joins && word[0] != '-' && word[0] != '[' {
			parts[len(parts)-1] += " " + word
		} else {
			parts = append(parts, word)
		}
		joins = depth == 0 && word[0] == '-'
		depth += strings.Count(word, "[") - strings.Count(word, "]")
	}
	text, line := "", first
	for i, part := range parts {
		switch {
		case i == 0:
			line += part
		case len(line)+1+len(part) > helpWidth:
			text, line = text+line+"\n", indent+part
		default:
			line += " " + part
		}
	}
	return text + line
}

// headings are what stands above the first command of each part of the table of all commands.
var headings = map[string]string{"up": "The node:", "fw show": "Rules:", "flow watch": "Traffic:",
	"pod attach": "Containers:", "peer add": "Other nodes:", "cluster init": "Clusters:",
	"dial": "Without a node:"}

// listCommands prints the table of all commands, or of those of a group.
func listCommands(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, "usage: %s\n", cmd.UseLine())
	if cmd.HasParent() {
		fmt.Fprintln(w)
	}
	width := 0
	for _, v := range commands() {
		width = max(width, len(v.name))
	}
	for _, v := range commands() {
		if heading := headings[v.name]; heading != "" && !cmd.HasParent() {
			fmt.Fprintf(w, "\n%s\n", heading)
		}
		if first, _, _ := strings.Cut(v.name, " "); !cmd.HasParent() || first == cmd.Name() {
			fmt.Fprintf(w, "  %-*s  %s\n", width, v.name, v.brief)
		}
	}
	fmt.Fprintf(w, "\nMore about a command: weir help COMMAND\n")
}
