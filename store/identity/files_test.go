package identity

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCredentialOfOthers: a credential that others can read or write is refused, also if only the
// group can.
func TestCredentialOfOthers(t *testing.T) {
	ca, err := NewCA("test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Issue(ca, ID{Kind: Admin, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "admin.pem")
	if _, err := ReadCredential(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []fs.FileMode{0o600, 0o400, 0o640, 0o604, 0o620, 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, err := ReadCredential(file)
		if mode&0o077 == 0 && err != nil || mode&0o077 != 0 && (err == nil ||
			!strings.Contains(err.Error(), "chmod 600")) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}
