package api

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestErrorsOfFiles: an answer says what to do about an error of a file system, unless the error
// says it itself.
func TestErrorsOfFiles(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/var/lib/weir/rules.saved", Err: unix.ENOSPC}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("nothing was changed: save the rules: %w", full), "df -h /var/lib/weir;"},
		{hinting{full}, "its own"},
		{fmt.Errorf("no such pod"), ""},
	} {
		w := httptest.NewRecorder()
		WriteError(w, 422, c.err)
		var got Error
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.Advice, c.want) || c.want == "" && got.Advice != "" {
			t.Errorf("%v: %q, not %q", c.err, got.Advice, c.want)
		}
	}
}

// hinting is an error that says what to do.
type hinting struct{ error }

func (hinting) Hint() string    { return "its own" }
func (h hinting) Unwrap() error { return h.error }
