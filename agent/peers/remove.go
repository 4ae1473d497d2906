package peers

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/internal/atomicfile"
)

// RemoveTraces takes away what peers have left: routes, the socket for wg(8), the record, and the
// key unless the settings name another file. The interface went with the agent, unless it is the
// kernel's. With keep, record, key and timestamps stay. removeEmpty removes a directory in which
// nothing is left.
func RemoveTraces(f Files, keep bool, removeEmpty func(dir string) error) error {
	bad := deleteKernelLinks(f, "")
	_, err := os.Stat(f.Record)
	if errors.Is(err, fs.ErrNotExist) { // routes are of another node, if there are any
		if keep {
			return bad
		}
		return errors.Join(bad, atomicfile.Remove(f.Key), atomicfile.Remove(f.Timestamps))
	}
	r, err := readRecord(f.Record)
	if err != nil && !errors.Is(err, errDamaged) {
		return errors.Join(bad, err)
	}
	errs := []error{bad}
	for _, one := range r.Peers {
		if one.Plain {
			errs = append(errs, removePlain(one.Pods))
		}
	}
	errs = append(errs, deleteBlackholesOf(func(netip.Prefix) bool { return true }))
	if r.Interface != "" {
		errs = append(errs, atomicfile.Remove(filepath.Join(f.UAPI, r.Interface+".sock")),
			removeEmpty(f.UAPI))
	}
	if keep {
		return errors.Join(errs...)
	}
	aside, err := filepath.Glob(f.Record + ".*")
	errs = append(errs, err)
	for _, file := range append(aside, f.Record, f.Key, f.Timestamps) {
		errs = append(errs, atomicfile.Remove(file))
	}
	return errors.Join(errs...)
}
