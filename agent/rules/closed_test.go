package rules

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/rule"
)

// TestClosedManagerWritesNothing: what is asked for while the node goes down brings back nothing
// that was removed.
func TestClosedManagerWritesNothing(t *testing.T) {
	b, e, h := newTimedManager(t)
	must(t, b, "table banned add 192.0.2.9 timeout 1h")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(b.store.path)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	load := func(confirm string) error {
		_, err := b.Load(t.Context(), api.Load{Name: "new", Text: "add 5 deny ip from any to any\n",
			Confirm: confirm})
		return err
	}
	_, revert := b.Revert(t.Context())
	for what, err := range map[string]error{
		"a rule":    second(b.do("add 5 deny ip from any to any", false)),
		"a member":  second(b.do("table banned add 192.0.2.1", false)),
		"a file":    second(b.doAll("/f", "add 5 deny ip from any to any\n")),
		"a load":    load(""),
		"a trial":   load("1h"),
		"its end":   revert,
		"confirmed": b.confirm(),
		"a version": b.EnforceClusterRules(version(t, b, "add 5 deny ip from any to any\n"), 0,
			nil),
		"it is kept": b.ConfirmClusterRules(),
		"a panic":    b.Panic(t.Context(), nil, 0),
		"it ends":    b.EndPanic(t.Context()),
	} {
		if !errors.Is(err, errClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	b.copyList(&rule.List{File: "/list", Seen: "now"})
	h.up += stampEvery
	b.expire()
	if err := b.saveAgain(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) || !passes(e, 80) {
		t.Errorf("the directory: %v", err)
	}
}
