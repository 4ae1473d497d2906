package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// helpWidth is how many columns a line of help has at most: those of a terminal of usual width.
const helpWidth = 80

// printFlags lists flags, as the pages write them, in lines of at most helpWidth columns.
func printFlags(to io.Writer, flags *flag.FlagSet) {
	flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		name := "--" + f.Name
		if len(f.Name) == 1 {
			name = "-" + f.Name
		}
		fmt.Fprintln(to, strings.TrimRight("  "+name+" "+value, " "))
		switch f.DefValue {
		case "", "0", "false", "0s", "[]":
		default:
			usage += " (default " + f.DefValue + ")"
		}
		const indent = "       "
		line := indent
		for word := range strings.FieldsSeq(usage) {
			if len(line)+1+len(word) > helpWidth && line != indent {
				fmt.Fprintln(to, line)
				line = indent
			}
			line += " " + word
		}
		fmt.Fprintln(to, line)
	})
}
