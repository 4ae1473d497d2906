package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/configfile"
	"github.com/weirnet/weir/rule"
)

const (
	// maxList is how many prefixes a file may hold, as many as a table of the kernel engine.
	maxList = 1 << 21
	// maxListBytes is how long it may be.
	maxListBytes = 256 << 20
)

// Fingerprint returns what identifies the content of a file without reading it.
func Fingerprint(file string) (string, error) {
	var s unix.Stat_t
	if err := unix.Stat(file, &s); err != nil {
		return "", &os.PathError{Op: "stat", Path: file, Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", configfile.NotRegular(file)
	}
	if s.Size > maxListBytes {
		return "", fmt.Errorf("%s has %d bytes: at most %d", file, s.Size, maxListBytes)
	}
	return fmt.Sprint(s.Dev, s.Ino, s.Size, s.Mtim.Nano(), s.Ctim.Nano()), nil
}

// errWritten means that a file changed while it was read.
type errWritten struct{ file string }

func (e errWritten) Error() string { return e.file + " is being written" }

// IsBeingWritten reports whether an error says that a file changed while it was read: it is to be
// read again.
func IsBeingWritten(err error) bool { return errors.As(err, new(errWritten)) }

// ReadList reads the file of a table: a prefix or an address on each line; # and ; begin a comment.
func ReadList(file string) (*rule.List, error) {
	seen, err := Fingerprint(file)
	if err != nil {
		return nil, err
	}
	// should it have become something else, this does not wait
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxListBytes+1))
	if err != nil {
		return nil, err
	}
	if again, err := Fingerprint(file); err != nil || again != seen {
		return nil, errors.Join(errWritten{file}, err)
	}
	prefixes, err := parseList(file, text)
	if err != nil {
		return nil, err
	}
	return &rule.List{File: file, Prefixes: prefixes, Seen: seen}, nil
}

// parseList reads the lines; an error names the first that is wrong.
func parseList(file string, text []byte) ([]netip.Prefix, error) {
	all := make([]netip.Prefix, 0, min(bytes.Count(text, []byte("\n"))+1, maxList))
	number := 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		number++
		if at := bytes.IndexAny(line, "#;"); at >= 0 {
			line = line[:at]
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		p, err := parseMember(string(line))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		if len(all) == maxList {
			return nil, fmt.Errorf("%s:%d: a table holds %d prefixes at most", file, number,
				maxList)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Clip(slices.Compact(all)), nil
}

func parseMember(text string) (p netip.Prefix, err error) {
	if strings.Contains(text, "/") {
		p, err = netip.ParsePrefix(text)
	} else if a, bad := netip.ParseAddr(text); bad == nil && a.Zone() == "" {
		p = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case err != nil || !p.IsValid():
		return p, fmt.Errorf("%.60q is not an address or a prefix", text)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%q is an IPv4-mapped address; write the IPv4 address", text)
	}
	return p.Masked(), nil
}

// ReadLists reads the files of the tables of a rule set by read, but for those that known has read
// already.
func ReadLists(set, known *rule.Ruleset, read func(file string) (*rule.List, error)) error {
	have := map[string]*rule.List{}
	if known != nil {
		for _, l := range known.Lists {
			have[l.File] = l
		}
	}
	for table, l := range set.Lists {
		if l.Seen != "" {
			continue
		}
		if have[l.File] == nil {
			all, err := read(l.File)
			if err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
			have[l.File] = all
		}
		set.Lists[table] = have[l.File]
	}
	return nil
}
