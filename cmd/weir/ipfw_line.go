package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/weirnet/weir/internal/filehint"
)

// ipfwLetters are the flags of ipfw.
const ipfwLetters = "abcdDefhinNpqsStTv"

// ipfwLine is a command line of ipfw: flags, then a command or a file.
type ipfwLine struct {
	listFlags
	force, quiet, test, help bool
	addresses                bool // values of tables are IPv4 addresses
	words                    []string
	file                     string
}

// ipfwHelp is what ipfw prints when it is called without a command.
const ipfwHelp = `usage: ipfw [-abcdDefhinNqSstTv] COMMAND
       ipfw [-cfnNqS] /FILE

  add [NUMBER] [set N] [prob P] RULE
  delete NUMBER[-NUMBER]... | set N
  list | show [NUMBER[-NUMBER]]...
  zero [NUMBER]...
  flush
  set disable N... enable N... | show | move [rule] N to N | swap N N
  set N list | show | delete NUMBER... | flush
  table NAME create | destroy | add | delete | flush | list | info | lookup
  table all list | info | flush | destroy
  nat N config OPTION... | delete | show
  nat show [config]
  pipe N config OPTION... | delete | show
  pipe show | flush

Rules: docs/rules.md; what differs from ipfw: docs/ipfw.md
`

// parseIPFW reads a command line as ipfw does. One argument is cut into words, and one that ends in
// a comma continues in the next. Flags end at the first word, and a last argument that begins with
// a slash is a file.
func parseIPFW(args []string) (*ipfwLine, error) {
	l := &ipfwLine{}
	if len(args) == 0 {
		l.help = true
		return l, nil
	}
	if last := args[len(args)-1]; strings.HasPrefix(last, "/") {
		l.file, args = last, args[:len(args)-1]
		if _, err := os.Stat(last); err != nil {
			return nil, usageError{what: err.Error(), hint: filehint.Of(err)}
		}
	} else if len(args) == 1 {
		text, _, _ := strings.Cut(args[0], "#")
		args = strings.Fields(text)
	}
	rest, err := l.flags(joinCommas(args))
	switch {
	case err != nil || l.help:
		return l, err
	case l.file != "" && len(rest) > 0:
		return nil, usageError{what: "extraneous filename arguments " + rest[0], hint: "ipfw -h"}
	case l.file != "":
		return l, nil
	case len(rest) == 0:
		return nil, usageError{what: "bad arguments, for usage summary ``ipfw''"}
	}
	// "100 add allow ..." is "add 100 allow ..."
	if len(rest) > 1 && startsWithDigit(rest[0]) {
		rest[0], rest[1] = rest[1], rest[0]
	}
	if len(rest) > 1 && rest[0] == "set" && startsWithDigit(rest[1]) {
		n, err := strconv.ParseUint(rest[1], 10, 8)
		if err != nil || n > 31 {
			return nil, usageError{what: "invalid set number " + rest[1],
				hint: "sets have numbers from 0 to 31"}
		}
		set := uint8(n)
		l.only, rest = &set, rest[2:]
	}
	if l.words = rest; len(rest) == 0 {
		return nil, usageError{what: "missing command", hint: "ipfw -h"}
	}
	return l, nil
}

func startsWithDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

// joinCommas puts an argument that ends in a comma together with the next.
func joinCommas(args []string) (joined []string) {
	for i, arg := range args {
		if i > 0 && strings.HasSuffix(args[i-1], ",") {
			joined[len(joined)-1] += arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// flags reads the flags in front of the command.
func (l *ipfwLine) flags(args []string) (rest []string, err error) {
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		for i := 1; i < len(arg); i++ {
			switch arg[i] {
			case 's': // which column to sort by: ipfw has none left
				if i+1 == len(arg) && len(args) > 0 {
					args = args[1:]
				}
				i = len(arg)
			case 'p':
				return nil, usageError{what: "-p: preprocessors are not run",
					hint: "put it in front: m4 FILE | ipfw /dev/stdin"}
			default:
				if err := l.flag(arg[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	return args, nil
}

func (l *ipfwLine) flag(letter byte) error {
	switch letter {
	case 'a':
		l.counters = true
	case 'b':
		l.brief = true
	case 'c':
		l.compact = true
	case 'd':
		l.dynamic = true
	case 'D':
		l.dynamicOnly = true
	case 'f':
		l.force = true
	case 'h':
		l.help = true
	case 'i':
		l.addresses = true
	case 'n':
		l.test = true
	case 'q':
		l.quiet = true
	case 'S':
		l.set = true
	case 't':
		l.times = true
	case 'T':
		l.unix = true
	case 'e', 'N', 'v': // -e did something once; names are not looked up; there is no more to say
	default:
		return usageError{what: fmt.Sprintf("illegal option -- %c", letter), hint: "ipfw -h"}
	}
	return nil
}

// ipfwCommands are the commands in the order in which ipfw looks for one that begins with a word.
var ipfwCommands = []string{"nat", "pipe", "queue", "flowset", "sched", "add", "set", "table",
	"enable", "disable", "delete", "nat64clat", "nat64stl", "nat64lsn", "nptv6", "flush", "zero",
	"resetlog", "print", "list", "show", "internal"}

// expand replaces the first word by the command that it is the beginning of, and returns that and
// the abbreviation, if it was one.
func (l *ipfwLine) expand() (full, abbreviated string) {
	word := l.words[0]
	for _, command := range ipfwCommands {
		if isAbbreviated(word, command) {
			if l.words[0] = command; command != word {
				abbreviated = word
			}
			return command, abbreviated
		}
	}
	return "", ""
}

func isAbbreviated(word, full string) bool { return word != "" && strings.HasPrefix(full, word) }

// line is the command in the grammar of rules.
func (l *ipfwLine) line() string {
	line := strings.Join(l.words, " ")
	if l.only != nil {
		line = fmt.Sprintf("set %d %s", *l.only, line)
	}
	return line
}
