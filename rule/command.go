package rule

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/program"
)

// CommandKind is what a command line does.
type CommandKind uint8

// The kinds. CommandNone and CommandZero change no Ruleset: the counters of a rule file start at 0,
// and a file that is read shows nothing.
const (
	CommandNone        CommandKind = iota // a line that changes nothing: empty, resetlog, show
	CommandZero                           // the counters of Numbers, or of all rules
	CommandAdd                            // Rule
	CommandDelete                         // Numbers (of Sets, if any), or every rule of Sets
	CommandFlush                          // all rules but those of set 31
	CommandSets                           // disable and enable Sets
	CommandMove                           // rules Number, or of set From if that is 0, to set To
	CommandSwap                           // sets From and To
	CommandTableCreate                    // Table
	CommandTableAdd                       // Entries to Table
	CommandTableDelete                    // Entries from Table
	CommandTableFlush                     // Table, or all tables if it is ""
	CommandTableDrop                      // destroy Table, or all tables if it is ""
	CommandPipe                           // pipe Number gets the configuration Pipe
	CommandPipeDelete                     // pipe Number
	CommandPipeFlush                      // all pipes
	CommandOnePass                        // enable or disable one_pass: Disable
	CommandNAT                            // nat Number gets the configuration NAT
	CommandNATDelete                      // nat Number
)

// Command is a parsed line.
type Command struct {
	Kind     CommandKind
	Pos      Pos
	Rule     *Rule
	Numbers  []Range // of rules
	Sets     uint32  // bit per set: CommandDelete, and what CommandSets disables
	Enable   uint32  // what CommandSets enables
	Number   uint16
	From, To uint8
	Table    string
	Entries  []TableEntry
	// Timeouts of the Entries, 0 for one that stays; nil if all do
	Timeouts []time.Duration
	IfNew    bool   // CommandTableCreate: fine if the table is there ("missing")
	Empty    bool   // CommandTableCreate: empty it if it is there ("or-flush")
	File     string // CommandTableCreate: the members are the lines of this file
	Pipe     *Pipe
	NAT      *NAT
	Disable  bool // CommandOnePass
}

// TableEntry is a member of a table.
type TableEntry struct {
	Prefix netip.Prefix
	Value  uint32
}

// maxHeld is how many rules commands can add, in enabled and disabled sets. Compile takes fewer,
// but only after all lines of a file: each line moves the rules behind it.
const maxHeld = 4 * program.MaxRules

// Apply executes the command. A command that removes several things removes those that exist, and
// the error names the first that does not; after any other error nothing is changed.
func (c *Command) Apply(s *Ruleset) error {
	switch c.Kind {
	case CommandAdd:
		if len(s.Rules) >= maxHeld {
			return errHeld(len(s.Rules))
		}
		s.Add(c.Rule)
	case CommandDelete:
		return c.delete(s)
	case CommandFlush:
		s.Flush()
	case CommandSets:
		s.Disabled = (s.Disabled | c.Sets) &^ c.Enable
	case CommandMove:
		return s.Move(c.Number, c.From, c.To)
	case CommandSwap:
		s.Swap(c.From, c.To)
	case CommandPipe, CommandPipeDelete, CommandPipeFlush:
		return c.pipe(s)
	case CommandNAT, CommandNATDelete:
		return c.nat(s)
	case CommandOnePass:
		s.ManyPass = c.Disable
	case CommandTableCreate, CommandTableAdd, CommandTableDelete, CommandTableFlush,
		CommandTableDrop:
		return c.table(s)
	}
	return nil
}

func (c *Command) pipe(s *Ruleset) error {
	switch _, there := s.Pipes[c.Number]; {
	case c.Kind == CommandPipeFlush:
		s.Pipes = nil
	case c.Kind == CommandPipeDelete && !there:
		return absent{fmt.Sprintf("there is no pipe %d", c.Number), "weir fw pipe show"}
	case c.Kind == CommandPipeDelete:
		delete(s.Pipes, c.Number)
	default:
		if s.Pipes == nil {
			s.Pipes = map[uint16]*Pipe{}
		}
		s.Pipes[c.Number] = c.Pipe
	}
	return nil
}

func (c *Command) nat(s *Ruleset) error {
	_, there := s.NATs[c.Number]
	switch {
	case c.Kind == CommandNATDelete && !there:
		return absent{fmt.Sprintf("there is no nat %d", c.Number), "weir fw nat show"}
	case c.Kind == CommandNATDelete:
		delete(s.NATs, c.Number)
	default:
		if s.NATs == nil {
			s.NATs = map[uint16]*NAT{}
		}
		s.NATs[c.Number] = c.NAT
	}
	return nil
}

func (c *Command) delete(s *Ruleset) error {
	var err error
	for _, n := range c.Numbers {
		sets := c.Sets
		if sets == 0 {
			sets = 1<<32 - 1
		}
		if s.deleteOf(n, sets) == 0 && err == nil {
			err = errNoRule(n)
		}
	}
	if len(c.Numbers) > 0 {
		return err
	}
	for set := range uint8(32) {
		if c.Sets>>set&1 == 1 {
			s.DeleteSet(set)
		}
	}
	return err
}

// absent is the error of a command that removes what is not there.
type absent struct{ msg, hint string }

func (e absent) Error() string { return e.msg }

// Hint returns the command that lists what exists.
func (e absent) Hint() string { return e.hint }

func noTable(name string) error {
	return absent{"there is no table " + name, "weir fw table all list"}
}

func errNoRule(n Range) error {
	return absent{fmt.Sprintf("there is no rule %s", n), listRules}
}

// errHeld refuses a rule when there are n.
func errHeld(n int) error {
	return fmt.Errorf("there are %d rules, the maximum of all sets together: "+
		"put addresses into a table", n)
}

// listRules is the hint for a rule that is not there.
const listRules = "weir fw list shows the rules with their numbers"

// errTable refuses to create a table that is there.
type errTable struct {
	name   string
	others bool // its members are not those that it was to have
}

func (e errTable) Error() string {
	if e.others {
		return fmt.Sprintf("table %s exists already, with other members", e.name)
	}
	return fmt.Sprintf("table %s exists already", e.name)
}

// Hint returns how to create the table.
func (e errTable) Hint() string {
	if e.others {
		return fmt.Sprintf("weir fw table %s destroy, or take another name", e.name)
	}
	return fmt.Sprintf("weir fw table %s create missing leaves it as it is, create or-flush "+
		"empties it", e.name)
}

// IsAbsent reports whether an error of Apply means that the thing to remove does not exist.
func IsAbsent(err error) bool {
	var gone absent
	return errors.As(err, &gone)
}

// checkList refuses to change what comes from a file.
func (c *Command) checkList(s *Ruleset) error {
	l := s.Lists[c.Table]
	switch c.Kind {
	case CommandTableCreate:
		have := ""
		if l != nil {
			have = l.File
		}
		if _, there := s.Tables[c.Table]; there && have != c.File {
			return errTable{c.Table, true}
		}
		return nil
	case CommandTableAdd, CommandTableDelete, CommandTableFlush:
		if l != nil {
			return fmt.Errorf("the members of table %s come from %s: change them there", c.Table,
				l.File)
		}
	}
	return nil
}

// Timeout returns the timeout of an entry, 0 if it has none.
func (c *Command) Timeout(i int) time.Duration {
	if c.Timeouts == nil {
		return 0
	}
	return c.Timeouts[i]
}

func (c *Command) table(s *Ruleset) error {
	if s.Tables == nil {
		s.Tables = make(map[string]Table)
	}
	t, there := s.Tables[c.Table]
	if err := c.checkList(s); err != nil {
		return err
	}
	switch c.Kind {
	case CommandTableCreate:
		if there && !c.IfNew && !c.Empty {
			return errTable{c.Table, false}
		}
		if !there || c.Empty {
			s.Tables[c.Table] = make(Table)
			delete(s.Deadlines, c.Table)
		}
		if !there && c.File != "" {
			if s.Lists == nil {
				s.Lists = map[string]*List{}
			}
			s.Lists[c.Table] = &List{File: c.File}
		}
	case CommandTableAdd: // ipfw makes a table at its first member too
		if !there {
			s.Tables[c.Table] = make(Table)
		}
		for i, e := range c.Entries {
			s.addMember(c.Table, e, c.Timeout(i))
		}
	case CommandTableDelete:
		if !there {
			return noTable(c.Table)
		}
		var err error
		for _, e := range c.Entries {
			if _, member := t[e.Prefix]; !member && err == nil {
				err = absent{fmt.Sprintf("table %s has no member %s", c.Table, e.Prefix),
					"weir fw table " + c.Table + " list"}
			}
			delete(t, e.Prefix)
			s.SetDeadline(c.Table, e.Prefix, 0)
		}
		return err
	case CommandTableFlush, CommandTableDrop:
		if c.Table != "" && !there {
			return noTable(c.Table)
		}
		names := []string{c.Table}
		if c.Table == "" {
			names = slices.Collect(maps.Keys(s.Tables))
		}
		for _, name := range names {
			clear(s.Tables[name])
			delete(s.Deadlines, name)
			if c.Kind == CommandTableDrop {
				delete(s.Lists, name)
				delete(s.Tables, name)
			}
		}
	}
	return nil
}
