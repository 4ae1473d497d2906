package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// store keeps one file per pod, written whole or not at all.
type store struct{ dir string }

func openStore(dir string) (store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return store{}, fmt.Errorf("pod records: %w", err)
	}
	return store{dir}, nil
}

// path is the file of a pod: its interface name, which is a hash of its key.
func (s store) path(key string) string { return filepath.Join(s.dir, hostIf(key)+".json") }

func (s store) save(p *Pod) error {
	if err := write(s.path(p.Key), p); err != nil {
		return fmt.Errorf("pod record of %s: %w", p.Name, err)
	}
	return nil
}

// write replaces a file by the JSON of v, whole or not at all.
func write(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := name + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// gatewaysFile remembers the addresses that the host was given, for a Remove that knows no settings.
const gatewaysFile = "gateways"

func (s store) saveGateways(list []netip.Addr) error {
	if err := write(filepath.Join(s.dir, gatewaysFile), list); err != nil {
		return fmt.Errorf("record of the gateway addresses: %w", err)
	}
	return nil
}

func (s store) loadGateways() (list []netip.Addr, err error) {
	data, err := os.ReadFile(filepath.Join(s.dir, gatewaysFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("record of the gateway addresses: %w", err)
	}
	return list, nil
}

func (s store) removeGateways() error {
	if err := os.Remove(filepath.Join(s.dir, gatewaysFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of the gateway addresses: %w", err)
	}
	return nil
}

func (s store) remove(key string) error {
	if err := os.Remove(s.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("pod record: %w", err)
	}
	return nil
}

// load reads all records. A file that cannot be read as one is left where it is and named in the error, with the others
// returned: one damaged record must not take the network from all pods.
func (s store) load() ([]*Pod, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("pod records: %w", err)
	}
	var pods []*Pod
	var damaged []error
	for _, f := range files {
		name := filepath.Join(s.dir, f.Name())
		if f.Name() == gatewaysFile {
			continue
		}
		if strings.HasSuffix(name, ".tmp") {
			damaged = append(damaged, os.Remove(name))
			continue
		}
		data, err := os.ReadFile(name)
		p := new(Pod)
		if err == nil {
			err = json.Unmarshal(data, p)
		}
		if err == nil && s.path(p.Key) != name {
			err = errors.New("its name does not fit its content")
		}
		if err != nil {
			damaged = append(damaged, fmt.Errorf("pod record %s: %w; remove it if its container is gone", name, err))
			continue
		}
		pods = append(pods, p)
	}
	return pods, errors.Join(damaged...)
}
