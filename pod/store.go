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

	"github.com/weirnet/weir/internal/atomicfile"
)

// store keeps one file per pod, written whole or not at all.
type store struct{ dir string }

// recordVersion is the version of a pod's file. A file of a later version is neither read nor
// overwritten.
const recordVersion = 1

func openStore(dir string) (store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return store{}, fmt.Errorf("pod records: %w", err)
	}
	return store{dir}, nil
}

// path returns the file of a pod, named after its interface, whose name is a hash of its key.
func (s store) path(key string) string { return filepath.Join(s.dir, hostIf(key)+recordEnding) }

const recordEnding = ".json"

func (s store) save(p *Pod) error {
	if err := write(s.path(p.Key), recordOf(p)); err != nil {
		return fmt.Errorf("pod record of %s: %w", p.Name, err)
	}
	return nil
}

// prepare has the record of a pod ready on the disk, beside the one that it will replace.
func (s store) prepare(p *Pod) (*atomicfile.Pending, error) {
	data, err := encode(recordOf(p))
	if err != nil {
		return nil, err
	}
	ready, err := atomicfile.Prepare(s.path(p.Key), data)
	if err != nil {
		return nil, fmt.Errorf("pod record of %s: %w", p.Name, err)
	}
	return ready, nil
}

func encode(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }

// write replaces a file by the JSON of v, whole or not at all.
func write(name string, v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	return atomicfile.Write(name, data)
}

// gatewaysFile lists the gateway addresses of the host, for Remove, which does not read the
// settings.
const gatewaysFile = "gateways"

func (s store) saveGateways(list []netip.Addr) error {
	if err := write(filepath.Join(s.dir, gatewaysFile), list); err != nil {
		return fmt.Errorf("record of the gateway addresses: %w", err)
	}
	return nil
}

func (s store) loadGateways() (list []netip.Addr, err error) {
	file := filepath.Join(s.dir, gatewaysFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("record of the gateway addresses: %w; take those of the pod ranges "+
			"from lo (ip address del ADDRESS dev lo), "+
			"remove %s and try again", err, file)
	}
	return list, nil
}

func (s store) removeGateways() error {
	if err := atomicfile.Remove(filepath.Join(s.dir, gatewaysFile)); err != nil {
		return fmt.Errorf("record of the gateway addresses: %w", err)
	}
	return nil
}

// remove removes the record of a pod, with copies that were set aside: they are of no use any more.
func (s store) remove(key string) error {
	aside, err := filepath.Glob(s.path(key) + ".*")
	for _, file := range append(aside, s.path(key)) {
		err = errors.Join(err, atomicfile.Remove(file))
	}
	if err != nil {
		return fmt.Errorf("pod record: %w", err)
	}
	return nil
}

// damagedRecord is a record that cannot be used.
type damagedRecord struct {
	file   string
	hostIf string // the interface that it was about
	newer  bool   // it is of a later version
	err    error
}

// load reads all records. Those that cannot be used stay where they are.
func (s store) load() ([]*Pod, []damagedRecord, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("pod records: %w", err)
	}
	change, _ := s.loadChange() // sweep reports a damaged one
	var pods []*Pod
	var damaged []damagedRecord
	for _, f := range files {
		if f.Name() == gatewaysFile || !strings.HasSuffix(f.Name(), recordEnding) {
			continue // set aside, or left by a crash
		}
		b := damagedRecord{file: filepath.Join(s.dir, f.Name()),
			hostIf: strings.TrimSuffix(f.Name(), recordEnding)}
		p, version, err := readRecord(change.file(b.file))
		if err == nil && s.path(p.Key) != b.file {
			err = errors.New("its name does not match its content")
		}
		if err != nil {
			b.err, b.newer = err, version > recordVersion
			damaged = append(damaged, b)
			continue
		}
		pods = append(pods, p)
	}
	return pods, damaged, nil
}

// readRecord reads a pod's file; one without a version is older than versions.
func readRecord(file string) (p *Pod, version int, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	var r record
	if err = json.Unmarshal(data, &r); err != nil {
		// The version may be readable where a later form of the rest is not.
		var head struct{ Version int }
		if json.Unmarshal(data, &head) == nil {
			version = head.Version
		}
		return nil, version, err
	}
	if r.Version > recordVersion {
		return nil, r.Version, fmt.Errorf("its version is %d, this Weir knows %d", r.Version,
			recordVersion)
	}
	if r.Key == "" {
		return nil, r.Version, errors.New("it is not a record of a pod")
	}
	return r.pod(), r.Version, nil
}

// sweep ends the change that a crash has interrupted, and removes temporary files that crashes have
// left, of earlier versions too.
func (s store) sweep() error {
	if err := s.finishChange(); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(s.dir, "*.tmp"))
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	if err = errors.Join(err, atomicfile.RemoveLeftovers(s.dir)); err != nil {
		return fmt.Errorf("pod records: %w", err)
	}
	return nil
}
