package configfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRead: a pipe, a directory, a device, an endless stream or a file that takes all memory is an
// error and not a wait.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	fifo, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	long := filepath.Join(dir, "long")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("add allow ip from any to any\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(long, nil, 0o600),
		os.Truncate(long, MaxBytes+1)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo: "not a regular file", dir: "is a directory", "/dev/zero": "not a regular file",
		filepath.Join(dir, "none"): "no such file", long: "longer than 64 MiB",
	} {
		_, err := Read(path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		var hint interface{ Hint() string }
		if want == "not a regular file" && (!errors.As(err, &hint) ||
			!strings.Contains(hint.Hint(), path)) {
			t.Errorf("%s: %v has no hint", path, err)
		}
	}
	if text, err := Read(file); err != nil || !strings.HasPrefix(string(text), "add allow") {
		t.Errorf("%q, %v", text, err)
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	_, err = ReadAll("/dev/zero", zero)
	if err == nil || !strings.Contains(err.Error(), "longer than 64 MiB") {
		t.Errorf("/dev/zero: %v", err)
	}
}

// TestWarning: who could change what a path leads to, by the file or by its directories and links,
// is named; root and the given users are not.
func TestWarning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	dir, err := os.MkdirTemp("/run", "weir-writer-") // every directory above is root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name string, uid, gid int, mode os.FileMode) {
		t.Helper()
		var err error
		if mode.IsDir() {
			err = os.Mkdir(at(name), 0o700)
		} else {
			err = os.WriteFile(at(name), nil, 0o600)
		}
		for _, err := range []error{err, os.Chown(at(name), uid, gid), os.Chmod(at(name), mode)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	put("good", 0, 0, os.ModeDir|0o755)
	put("good/rules", 0, 0, 0o664)
	put("good/all", 0, 0, 0o646)
	put("good/group", 0, 1234, 0o660)
	put("good/theirs", 1234, 0, 0o600)
	put("good/private", 1234, 1234, 0o664)
	put("open", 0, 0, os.ModeDir|0o777)
	put("open/rules", 0, 0, 0o600)
	put("sticky", 0, 0, os.ModeDir|os.ModeSticky|0o777)
	put("sticky/rules", 0, 0, 0o600)
	for name, to := range map[string]string{"good/link": "../sticky/rules",
		"good/far": "../open/near", "open/near": at("good/rules"), "good/loop": "loop"} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, want string
		users      []uint32
	}{
		{name: "good/rules"}, {name: "good/none"}, {name: "good/loop"},
		{name: "good/all", want: "everyone may write " + at("good/all") + " (mode 0646)"},
		{name: "good/group", want: "group 1234 may write " + at("good/group") + " (mode 0660)"},
		{name: "good/theirs", want: at("good/theirs") + " belongs to uid 1234"},
		{name: "good/theirs", users: []uint32{1234}},
		{name: "good/private", users: []uint32{1234}},
		{name: "good/private", users: []uint32{1235}, want: at("good/private") +
			" belongs to uid 1234"},
		{name: "open/rules", want: "everyone may write " + at("open") + " (mode 0777)"},
		{name: "sticky/rules"}, {name: "good/link"},
		{name: "good/far", want: "everyone may write " + at("open") + " (mode 0777)"},
	} {
		want := ""
		if c.want != "" {
			want = "others than root can change " + at(c.name) + ": " + c.want
		}
		got := Warning(at(c.name), c.users...)
		if got, _, _ := strings.Cut(got, "; ch"); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
		}
	}
}
