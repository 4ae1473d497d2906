package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// runCompletion prints a script that completes verbs and flags, made from the table of verbs.
func runCompletion(c *call) error {
	if err := c.parse(1, 1); err != nil {
		return err
	}
	write := map[string]func(io.Writer, []verb){
		"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion,
	}[c.Arg(0)]
	if write == nil {
		return c.wrong("%q is not one of bash, zsh, fish", c.Arg(0))
	}
	write(c.out, verbs())
	return nil
}

// flagPattern finds the flags in a usage text: "--name", "-n", and the letters of "[-jq]".
var flagPattern = regexp.MustCompile(`--[a-z-]+|-[a-zA-Z46]+\b`)

func flagsOf(v verb) (flags []string) {
	for _, f := range flagPattern.FindAllString(v.args, -1) {
		if strings.HasPrefix(f, "--") || len(f) == 2 {
			flags = append(flags, f)
			continue
		}
		for _, letter := range f[1:] {
			flags = append(flags, "-"+string(letter))
		}
	}
	slices.Sort(flags)
	return slices.Compact(flags)
}

// groups returns the first words of verbs, and the second words of each.
func groups(all []verb) (first []string, second map[string][]string) {
	second = map[string][]string{}
	for _, v := range all {
		a, b, two := strings.Cut(v.name, " ")
		if !slices.Contains(first, a) {
			first = append(first, a)
		}
		if two {
			second[a] = append(second[a], b)
		}
	}
	return append(first, "help"), second
}

func bashCompletion(w io.Writer, all []verb) {
	first, second := groups(all)
	fmt.Fprintf(w,
		"# bash completion for weir; made by: weir completion bash\n_weir() {\n"+
			"\tlocal cur=${COMP_WORDS[COMP_CWORD]} words=\n")
	fmt.Fprintf(w, "\tcase $COMP_CWORD in\n\t1) words=%q ;;\n\t*)\n\t\tcase ${COMP_WORDS[1]} in\n",
		strings.Join(first, " "))
	for _, a := range first {
		if s := second[a]; s != nil {
			fmt.Fprintf(w, "\t\t%s) [ $COMP_CWORD = 2 ] && words=%q ;;\n", a, strings.Join(s, " "))
		}
	}
	fmt.Fprintf(w,
		"\t\tesac\n\t\tif [[ $cur = -* ]]; then\n"+
			"\t\t\tcase \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n")
	for _, v := range all {
		if flags := flagsOf(v); flags != nil {
			pattern := `"` + v.name + `"`
			if !strings.Contains(v.name, " ") {
				pattern = `"` + v.name + ` "*`
			}
			fmt.Fprintf(w, "\t\t\t%s) words=%q ;;\n", pattern, strings.Join(flags, " "))
		}
	}
	fmt.Fprintf(w,
		"\t\t\tesac\n\t\tfi ;;\n\tesac\n\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- "+
			"\"$cur\")\n}\ncomplete -o default -F _weir weir\n")
}

func zshCompletion(w io.Writer, all []verb) {
	quote := func(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }
	first, second := groups(all)
	fmt.Fprintf(w,
		"#compdef weir\n# made by: weir completion zsh\n_weir() {\n\tlocal -a words_here\n"+
			"\tif (( CURRENT == 2 )); then\n\t\twords_here=(%s)\n", strings.Join(first, " "))
	for _, a := range first {
		if s := second[a]; s != nil {
			fmt.Fprintf(w,
				"\telif (( CURRENT == 3 )) && [[ $words[2] == %s ]]; then\n\t\twords_here=(%s)\n",
				a, strings.Join(s, " "))
		}
	}
	fmt.Fprintf(w, "\telse\n\t\tcase \"$words[2] $words[3]\" in\n")
	for _, v := range all {
		if flags := flagsOf(v); flags != nil {
			pattern := "'" + quote(v.name) + "'"
			if !strings.Contains(v.name, " ") {
				pattern = "'" + quote(v.name) + " '*"
			}
			fmt.Fprintf(w, "\t\t%s) words_here=(%s) ;;\n", pattern, strings.Join(flags, " "))
		}
	}
	fmt.Fprintf(w,
		"\t\tesac\n\t\t_files\n\tfi\n\t(( $#words_here )) && compadd -- $words_here\n}\n"+
			"_weir \"$@\"\n")
}

func fishCompletion(w io.Writer, all []verb) {
	first, second := groups(all)
	fmt.Fprintf(w, "# fish completion for weir; made by: weir completion fish\n")
	fmt.Fprintf(w, "complete -c weir -n __fish_use_subcommand -f -a %q\n", strings.Join(first, " "))
	for _, a := range first {
		if s := second[a]; s != nil {
			list := strings.Join(s, " ")
			fmt.Fprintf(w,
				"complete -c weir -n '__fish_seen_subcommand_from %s; and not "+
					"__fish_seen_subcommand_from %s' -f -a %q\n", a, list, list)
		}
	}
	for _, v := range all {
		words := strings.Fields(v.name)
		for _, f := range flagsOf(v) {
			option := "-o " + f[1:]
			if strings.HasPrefix(f, "--") {
				option = "-l " + f[2:]
			}
			fmt.Fprintf(w, "complete -c weir -n '__fish_seen_subcommand_from %s' %s\n",
				words[len(words)-1], option)
		}
	}
}
