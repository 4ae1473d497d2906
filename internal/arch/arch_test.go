package arch

import (
	"os"
	"path/filepath"
	"testing"
)

// root is the project, seen from here.
const root = "../.."

func complain(t *testing.T, found []string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
}

// read returns the content of a file, whose path is slash-separated.
func read(root, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
}

func TestImports(t *testing.T) {
	found, err := Imports(root)
	complain(t, found, err)
}

func TestCode(t *testing.T) {
	found, err := Code(root)
	complain(t, found, err)
}

func TestDials(t *testing.T) {
	found, err := Dials(root)
	complain(t, found, err)
}

func TestAddresses(t *testing.T) {
	found, err := Addresses(root)
	complain(t, found, err)
}

func TestRequests(t *testing.T) {
	found, err := Requests(root)
	complain(t, found, err)
}

func TestSizes(t *testing.T) {
	tooLong, crowded, err := Sizes(root)
	complain(t, tooLong, err)
	for _, c := range crowded {
		t.Logf("crowded: %s", c)
	}
	for name, why := range oversized {
		if _, err := read(root, name); err != nil || why == "" {
			t.Errorf("oversized names %s, which is gone or has no reason: %v", name, err)
		}
	}
}

func TestWords(t *testing.T) {
	found, err := Words(root)
	complain(t, found, err)
}

func TestVocabulary(t *testing.T) {
	found, err := Vocabulary(root)
	complain(t, found, err)
	for _, h := range homonyms {
		if _, err := read(root, h.file); err != nil || h.why == "" {
			t.Errorf("homonyms names %s, which is gone or has no reason: %v", h.file, err)
		}
	}
}

func TestColumns(t *testing.T) {
	found, err := Columns(root)
	complain(t, found, err)
}
