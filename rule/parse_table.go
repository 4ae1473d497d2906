package rule

import (
	"path"
	"slices"
	"strings"
	"time"
)

const tableHint = "table NAME create, add PREFIX [VALUE] [timeout TIME], delete PREFIX, flush or " +
	"destroy"

// tableCommand reads NAME and what to do with it. ipfw's old order, table N add, is the same.
func (p *parser) tableCommand(c *Command) error {
	t, err := p.need("name of the table", tableHint)
	if err != nil {
		return err
	}
	if err := p.tableName(t); err != nil {
		return err
	}
	if strings.Contains(t.text, "=") {
		return p.fail(t,
			"its members are the pods that have the label: weir pod attach --label; choose "+
				"another name for a table",
			"%s is the table of a label: no command changes it", quote(t.text))
	}
	c.Table = t.text
	p.accept("atomic") // every line is
	command, err := p.need("the command for the table", tableHint)
	if err != nil {
		return err
	}
	changes := []string{"create", "add", "delete"}
	if c.Table == "all" && slices.Contains(changes, command.text) {
		return p.fail(t, "choose another name: table all flush empties every table",
			"no table can have the name %s", quote(t.text))
	}
	switch command.text {
	case "create":
		c.Kind = CommandTableCreate
		return p.createOptions(c)
	case "add":
		c.Kind = CommandTableAdd
		return p.entries(c, true)
	case "delete":
		c.Kind = CommandTableDelete
		return p.entries(c, false)
	case "flush", "destroy":
		c.Kind = CommandTableFlush
		if command.text == "destroy" {
			c.Kind = CommandTableDrop
		}
		if c.Table == "all" {
			c.Table = ""
		}
		return p.end(command.text)
	case "list", "info", "detail", "lookup":
		c.Kind = CommandNone
		p.accept(p.peek().text) // the address of lookup
		return p.end("table " + command.text)
	case "swap", "lock", "unlock", "modify":
		return p.fail(command, "load the file again: it replaces everything at once",
			"%s of tables is a part of ipfw that Weir does not have", quote(command.text))
	}
	return p.fail(command, tableHint, "unknown word %s after table", quote(command.text))
}

// createOptions reads ipfw's. What concerns only ipfw's data structures is accepted and has no
// effect.
func (p *parser) createOptions(c *Command) error {
	for !p.done() {
		t := p.next()
		var err error
		switch t.text {
		case "missing":
			c.IfNew = true
		case "or-flush":
			c.Empty = true
		case "file":
			var f token
			if f, err = p.need("the file", "file /etc/weir/blocked.txt"); err == nil {
				c.File = f.text
			}
			if err == nil && (!path.IsAbs(f.text) || path.Clean(f.text) != f.text) {
				err = p.fail(f, "", "the file needs its whole path, like /etc/weir/blocked.txt")
			}
		case "locked":
			err = p.fail(t, "", "locked tables are a part of ipfw that Weir does not have")
		case "type":
			v := p.next()
			if v.text != "addr" {
				err = p.fail(v, "ports and interfaces are matched by their own options",
					"tables hold addresses: type addr, not %s", p.found(v))
			}
		case "valtype", "algo", "limit":
			_, err = p.need("argument of "+t.text, "")
		default:
			err = p.fail(t, "type addr, missing, or-flush, file PATH", "unknown table option %s",
				quote(t.text))
		}
		if err != nil {
			return err
		}
	}
	if c.File != "" && c.Empty {
		return p.fail(p.peek(), "", "a table that comes from a file cannot be emptied")
	}
	return nil
}

// entries reads PREFIX [VALUE] [timeout TIME]..., without values PREFIX...
func (p *parser) entries(c *Command, values bool) error {
	if p.done() {
		return p.fail(p.peek(), tableHint, "the prefix is missing")
	}
	timed := false
	for !p.done() {
		prefix, err := p.prefix(p.next())
		if err != nil {
			return err
		}
		e := TableEntry{Prefix: prefix}
		// not the next prefix
		if v := p.peek(); values && !p.done() && v.text != "timeout" &&
			!strings.ContainsAny(v.text, ".:/") {
			p.next()
			if e.Value, err = p.num(v, "table value", 0, 1<<32-1); err != nil {
				return err
			}
		}
		c.Entries = append(c.Entries, e)
		var timeout time.Duration
		if values && p.accept("timeout") {
			if timeout, err = p.timeout(); err != nil {
				return err
			}
			timed = true
		}
		c.Timeouts = append(c.Timeouts, timeout)
	}
	if !timed {
		c.Timeouts = nil
	}
	return nil
}
