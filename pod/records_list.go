package pod

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/weirnet/weir/internal/nl"
)

// AnyRecord reports whether there is a record of a pod, whether it can be used or not.
func AnyRecord(dir string) (bool, error) {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.ContainsFunc(files, func(f fs.DirEntry) bool {
		return strings.HasSuffix(f.Name(), recordEnding)
	}), err
}

// ReadRecords returns the pods with a complete record and an interface, which find looks up by
// recorded index or name, and alias. For a pod whose record cannot be used it returns what the
// kernel knows, with the labels that labels returns; the error reports such records. It changes
// nothing: rules can refer to pods before a Manager takes them over.
func ReadRecords(dir string,
	find func(recorded uint32, name string, is func(alias string) bool) (index uint32),
	labels func([]netip.Addr) map[string]string) ([]Pod, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	records, damaged, err := store{dir}.load()
	if len(damaged) > 0 {
		rescued, bad := rescue(damaged, labels)
		records, err = append(records, rescued...), errors.Join(err, bad)
	}
	var all []Pod
	for _, p := range records {
		if p.Index = find(p.Index, p.HostIf, func(alias string) bool {
			return isAliasOf(alias, p)
		}); p.Ready && p.Index != 0 {
			all = append(all, *p)
		}
	}
	return all, err
}

// rescue makes pods from what the kernel knows of those with damaged records.
func rescue(damaged []damagedRecord, labels func([]netip.Addr) map[string]string) (all []*Pod,
	err error) {
	conn, err := nl.Open(nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for _, b := range damaged {
		p, _, bad := podFromHostEnd(conn, b.hostIf, labels)
		if err = errors.Join(err, b.err, bad); p != nil {
			all = append(all, p)
		}
	}
	return all, err
}
