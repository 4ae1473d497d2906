// Package filehint says what to do about an error of a file system, such as a full disk.
package filehint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Of returns what to do about an error, "" if it is not one of those that are known or has no path.
func Of(err error) string {
	var path string
	var at *fs.PathError
	var two *os.LinkError
	switch {
	case errors.As(err, &at):
		path = at.Path
	case errors.As(err, &two):
		path = two.New
	default:
		return ""
	}
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing(path)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Sprintf("free space there: df -h %s; if there is some: df -i %s", dir, dir)
	case errors.Is(err, unix.EDQUOT):
		return fmt.Sprintf("the quota is used up: free space in %s, or raise it", dir)
	case errors.Is(err, unix.EROFS):
		return fmt.Sprintf("mount it for writing: findmnt -T %s shows what is mounted there", dir)
	case errors.Is(err, unix.EISDIR):
		return fmt.Sprintf("name a file: ls %s", path)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Sprintf("a part of the path is a file: namei %s", path)
	case errors.Is(err, unix.ELOOP):
		return fmt.Sprintf("the link leads to itself: namei %s", path)
	case errors.Is(err, unix.EIO):
		return "the disk may be broken: dmesg"
	}
	return ""
}

// missing names the part of a path that does not exist; "" if it exists by now.
func missing(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	if _, err := os.Lstat(path); err == nil {
		return ""
	}
	for path != "/" {
		dir, name := filepath.Dir(path), filepath.Base(path)
		if _, err := os.Stat(dir); err == nil {
			return fmt.Sprintf("%s does not exist in %s: ls %s", name, dir, dir)
		}
		path = dir
	}
	return ""
}
