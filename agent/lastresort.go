package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/store/disk"
)

// LastResort closes the host if an agent cannot start and no hooks of an earlier agent guard it: a
// stateless program lets in only answers to the host, and ssh. It is removed when the hooks of an
// agent are in place, and by Down. If no rules were ever loaded, LastResort does nothing.
func LastResort(p Paths, file string, s Settings) (closed []string, err error) {
	if kernel.Guards(p.Pins()) || file == "" && !given(p) {
		return nil, nil
	}
	return kernel.BlockAll(s.Host.Guards, s.Rules.SSH != rules.SSHNever)
}

// given reports whether there are, or were, rules.
func given(p Paths) bool {
	if _, err := os.Lstat(p.Rules()); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if _, err := os.Lstat(filepath.Join(p.Store(), disk.MemberFile)); err == nil {
		return true // by its cluster
	}
	return rules.HadRules(p.Saved())
}
