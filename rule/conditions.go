package rule

import (
	"fmt"
	"math"
	"strings"

	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule/op"
)

// residual appends a clause to Conds.
func (c *compiler) residual(clause Clause) error {
	for i := range clause {
		cond, err := c.cond(&clause[i])
		if err != nil {
			return err
		}
		if i+1 < len(clause) {
			cond.Flags |= program.FlagOr
		}
		c.Conds = append(c.Conds, cond)
	}
	return nil
}

// cond turns a test into a condition, its lists and names into pool entries and ids.
func (c *compiler) cond(t *Test) (program.Cond, error) {
	cond := program.Cond{Op: t.Op, A: t.A, B: t.B}
	if t.Not {
		cond.Flags = program.FlagNot
	}
	id, err := 0, error(nil)
	switch t.Op {
	case op.CondSrcIn, op.CondDstIn, op.CondRecvAddr, op.CondXmitAddr, op.CondViaAddr:
		if len(t.Prefixes) > math.MaxUint16 {
			return cond, fmt.Errorf("%d prefixes in one list, at most %d: use a table",
				len(t.Prefixes), math.MaxUint16)
		}
		cond.A, cond.N = uint32(len(c.Prefixes)), uint16(len(t.Prefixes))
		c.Prefixes = append(c.Prefixes, t.Prefixes...)
		return cond, nil
	case op.CondSrcPort, op.CondDstPort, op.CondWin, op.CondICMPType, op.CondICMP6Type, op.CondTTL,
		op.CondLen, op.CondID, op.CondTagged:
		if len(t.Ranges) > math.MaxUint16 {
			return cond, fmt.Errorf("%d entries in the list of %s, at most %d",
				len(t.Ranges), t.Op.Word(), math.MaxUint16)
		}
		cond.A, cond.N = uint32(len(c.Ranges)), uint16(len(t.Ranges))
		for _, r := range t.Ranges {
			c.Ranges = append(c.Ranges, program.Range(r))
		}
		return cond, nil
	case op.CondSrcTable, op.CondDstTable:
		id, err = intern(c.tables, &c.Tables, t.Name, program.MaxTables, "tables")
		if t.HasValue {
			cond.N, cond.B = 1, t.Value
		}
	case op.CondRecv, op.CondXmit, op.CondVia:
		id, err = intern(c.names, &c.Names, t.Name, program.MaxNames, "interface names")
	case op.CondRecvGlob, op.CondXmitGlob, op.CondViaGlob:
		id, err = intern(c.globs, &c.Globs, t.Name, program.MaxGlobs, "interface patterns")
	default:
		return cond, nil
	}
	cond.A = uint32(id)
	return cond, err
}

// Glob reports whether name matches pattern, in which '*' stands for any run of bytes and '?' for
// one byte.
func Glob(pattern, name string) bool {
	// star is the last '*' seen; on a mismatch it takes one byte more.
	p, n, star, taken := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, taken = p, n
			p++
		case p < len(pattern) && one(pattern[p:], name[n]) > 0:
			p += one(pattern[p:], name[n])
			n++
		case star >= 0:
			taken++
			p, n = star+1, taken
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one returns how many bytes of the pattern match a character, 0 when they do not.
func one(pattern string, c byte) int {
	switch {
	case pattern[0] == '[':
		if width, in := class(pattern, c); in {
			return width
		}
		return 0
	case pattern[0] == '?' || pattern[0] == c:
		return 1
	}
	return 0
}

// class reads the class of characters, [0-9ab] or [!0-9], that a pattern begins with. width is 0
// for one that is empty, not closed, or has a range that ends before it begins.
func class(pattern string, c byte) (width int, in bool) {
	end := strings.IndexByte(pattern, ']')
	if end < 0 {
		return 0, false
	}
	list := pattern[1:end]
	not := list != "" && (list[0] == '!' || list[0] == '^')
	if not {
		list = list[1:]
	}
	if list == "" {
		return 0, false
	}
	for i := 0; i < len(list); i++ {
		lo, hi := list[i], list[i]
		if i+2 < len(list) && list[i+1] == '-' {
			hi = list[i+2]
			i += 2
		}
		if hi < lo {
			return 0, false
		}
		in = in || lo <= c && c <= hi
	}
	return end + 1, in != not
}
