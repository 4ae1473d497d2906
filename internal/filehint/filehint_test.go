package filehint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOf: an error of a file system has a hint with the place, however it is wrapped. Others have
// none.
func TestOf(t *testing.T) {
	dir := t.TempDir()
	_, directory := os.ReadFile(dir)
	_, below := os.ReadFile("/dev/null/x")
	full := os.WriteFile("/dev/full", []byte("x"), 0)
	loop := dir + "/loop"
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	_, circular := os.ReadFile(loop)
	rename := &os.LinkError{Op: "rename", Old: "/a/b", New: "/c/d", Err: unix.EROFS}
	for _, c := range []struct {
		err  error
		want string
	}{
		{directory, "ls " + dir}, {below, "namei /dev/null/x"}, {circular, "namei " + loop},
		{full, "df -h /dev;"}, {rename, "findmnt -T /c "},
		{&fs.PathError{Path: "/x/y", Err: unix.EDQUOT}, "in /x,"},
		{&fs.PathError{Path: "/x/y", Err: unix.EIO}, "dmesg"},
		{&fs.PathError{Path: dir + "/x/y", Err: unix.ENOENT}, "x does not exist in " + dir},
		{&fs.PathError{Path: dir, Err: unix.ENOENT}, ""}, {unix.ENOSPC, ""},
		{errors.New("other"), ""},
	} {
		got := Of(fmt.Errorf("nothing was changed: %w", c.err))
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v: %q, not %q", c.err, got, c.want)
		}
	}
}
