package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirnet/weir/internal/atomicfile"
)

// changedSysctls are the kernel's settings below /proc/sys/net that a node with containers or
// forwarded ports sets to 1, and what changes with them. The kernel sets forwarding of each
// interface and, in IPv4, whether redirects are accepted (ip-sysctl.rst); Router sets accept_ra.
var changedSysctls = []struct {
	name string
	with []string
}{
	{"ipv4/ip_forward", []string{"ipv4/conf/all/accept_redirects", "ipv4/conf/*/forwarding"}},
	{"ipv6/conf/all/forwarding", []string{"ipv6/conf/*/forwarding", "ipv6/conf/*/accept_ra"}},
	{"ipv4/conf/lo/route_localnet", nil},
	{"ipv4/conf/lo/accept_local", nil},
}

// sysctlRecord is what the kernel's settings were before this node changed them.
type sysctlRecord struct {
	Version int    `json:"version"`
	Boot    string `json:"boot"` // a record of another boot, or another namespace, is ignored
	Netns   string `json:"netns"`
	// Before has the values by name, like "ipv4/ip_forward".
	Before map[string]string `json:"before"`
	// Restoring are the names that had Weir's value when RestoreSysctls began, nil before. One that
	// was killed may have set them already, and not yet what the kernel changed with them.
	Restoring []string `json:"restoring,omitempty"`
}

func (r sysctlRecord) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(text, '\n'))
}

const sysctlDir = "/proc/sys/net"

// recordSysctls records the kernel's settings, once for each boot, before anything is changed, and
// returns them. A record that is damaged is set aside, and errNotAsBefore returned: the settings
// before are not known.
func recordSysctls(record string) (before map[string]string, err error) {
	now, err := thisBoot()
	if err != nil {
		return nil, err
	}
	var damage error
	if text, err := os.ReadFile(record); err == nil {
		var r sysctlRecord
		err := json.Unmarshal(text, &r)
		if err == nil && r.Version >= 1 && r.is(now) {
			if r.Restoring == nil {
				return r.Before, nil
			}
			r.Restoring = nil
			return r.Before, r.write(record)
		}
		if err != nil || r.Version < 1 {
			aside, err := atomicfile.MoveAside(record, "damaged")
			if damage = (errNotAsBefore{aside}); err != nil {
				return nil, err
			}
		}
	}
	if now.Before, err = readSysctls(); err != nil {
		return nil, err
	}
	if err := now.write(record); err != nil {
		return nil, err
	}
	return now.Before, damage
}

// errNotAsBefore means that the record of the kernel's settings is damaged, and names the copy.
type errNotAsBefore struct{ aside string }

func (e errNotAsBefore) Error() string {
	return "the record is damaged; it was renamed to " + e.aside
}

// thisBoot is a record without values.
func thisBoot() (r sysctlRecord, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return r, err
	}
	netns, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return r, err
	}
	return sysctlRecord{Version: 1, Boot: strings.TrimSpace(string(boot)), Netns: netns}, nil
}

func (r sysctlRecord) is(o sysctlRecord) bool { return r.Boot == o.Boot && r.Netns == o.Netns }

// readSysctls returns the values as they are.
func readSysctls() (map[string]string, error) {
	all := map[string]string{}
	for _, c := range changedSysctls {
		for _, pattern := range append([]string{c.name}, c.with...) {
			files, err := filepath.Glob(filepath.Join(sysctlDir, pattern))
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				value, err := os.ReadFile(file)
				if errors.Is(err, fs.ErrNotExist) { // an interface that went meanwhile
					continue
				}
				if err != nil {
					return nil, err
				}
				all[strings.TrimPrefix(file, sysctlDir+"/")] = strings.TrimSpace(string(value))
			}
		}
	}
	return all, nil
}

// RestoreSysctls restores the settings in the record and removes the record. A setting with another
// value than Weir's was changed by another program, and stays.
func RestoreSysctls(record string) error {
	text, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r sysctlRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("the kernel's settings before Weir are not known: %s: %w; "+
			"set net.ipv4.ip_forward and net.ipv6.conf.all.forwarding as you want them, remove "+
			"the file and try again", record, err)
	}
	now, err := thisBoot()
	if err != nil {
		return err
	}
	if r.is(now) {
		values, err := readSysctls()
		if err == nil {
			_ = r.begin(record, values) // on a full disk only a crash would miss it
			err = r.putBack(values)
		}
		if err != nil {
			return err
		}
	}
	return atomicfile.Remove(record)
}

// begin records what is to be restored, unless one that was killed has.
func (r *sysctlRecord) begin(record string, now map[string]string) error {
	if r.Restoring != nil {
		return nil
	}
	for _, c := range changedSysctls {
		if was, known := r.Before[c.name]; known && was != "1" && now[c.name] == "1" {
			r.Restoring = append(r.Restoring, c.name)
		}
	}
	return r.write(record)
}

// putBack sets what Weir has set to 1 as it was before, and then what the kernel changed with it.
// What was not 1 any more was set by another program.
func (r *sysctlRecord) putBack(now map[string]string) error {
	var errs []error
	before := r.Before
	for _, c := range changedSysctls {
		if !slices.Contains(r.Restoring, c.name) {
			continue
		}
		errs = append(errs, setSysctl(c.name, before[c.name]))
		for _, name := range slices.Sorted(maps.Keys(before)) {
			follows := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
			set := path.Base(name) != "accept_ra" ||
				before[name] == "1" && now[name] == routerAcceptsRA
			if slices.ContainsFunc(c.with, follows) && set {
				errs = append(errs, setSysctl(name, before[name]))
			}
		}
	}
	return errors.Join(errs...)
}

// setSysctl sets one of the kernel's settings, unless its interface is gone.
func setSysctl(name, value string) error {
	root, err := os.OpenRoot(sysctlDir) // the name is from a file
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}
