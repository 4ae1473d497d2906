package configfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links the kernel follows in one path.
const maxLinks = 40

// Warning says who could change a file besides root, this process's user and the given ones, and
// what to do. Others can do so by the owner or the mode of the file, of a directory above it, or of
// what a symbolic link on the way leads through. "" means no one, or that the file is not there. An
// access control list shows in the mode of the group.
func Warning(path string, users ...uint32) string {
	if who := writer(path, append(users, uint32(os.Geteuid()))); who != "" {
		return fmt.Sprintf("others than root can change %s: %s", path, who)
	}
	return ""
}

func writer(path string, users []uint32) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	at, rest := "/", strings.Split(path, "/")
	for links := 0; links <= maxLinks; {
		var s unix.Stat_t
		if unix.Lstat(at, &s) != nil {
			return ""
		}
		for len(rest) > 0 && (rest[0] == "" || rest[0] == ".") {
			rest = rest[1:]
		}
		if who := writerOf(at, &s, len(rest) > 0, users); who != "" {
			return who
		}
		if s.Mode&unix.S_IFMT == unix.S_IFLNK {
			to, err := os.Readlink(at)
			if err != nil {
				return ""
			}
			rest = append(strings.Split(to, "/"), rest...)
			if at = filepath.Dir(at); filepath.IsAbs(to) {
				at = "/"
			}
			links++
			continue
		}
		if len(rest) == 0 {
			return ""
		}
		at, rest = filepath.Join(at, rest[0]), rest[1:] // at has no link in it: ".." is as written
	}
	return ""
}

// writerOf is writer for one entry on the way.
func writerOf(at string, s *unix.Stat_t, above bool, users []uint32) string {
	mode := s.Mode & 0o7777
	switch {
	case s.Uid != 0 && !slices.Contains(users, s.Uid):
		return fmt.Sprintf("%s belongs to uid %d; chown root %s", at, s.Uid, at)
	case s.Mode&unix.S_IFMT == unix.S_IFLNK:
	case above && s.Mode&unix.S_ISVTX != 0: // only the owner of an entry may replace it
	case mode&unix.S_IWOTH != 0:
		return fmt.Sprintf("everyone may write %s (mode %04o); chmod go-w %s", at, mode, at)
	case mode&unix.S_IWGRP != 0 && s.Gid != 0 && !slices.Contains(users, s.Gid):
		// the group of a user alone has the user's number
		return fmt.Sprintf("group %d may write %s (mode %04o); chmod g-w %s", s.Gid, at, mode, at)
	}
	return ""
}
