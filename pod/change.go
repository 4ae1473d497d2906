package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/internal/atomicfile"
)

// change has the files of records that take the places of others together, by the name of the
// record. As soon as it is on the disk, all of them count.
type change map[string]string

// changeFile has the change that is under way, if there is one.
const changeFile = "change"

// prepareChange has a change to these records ready on the disk.
func (s store) prepareChange(all []*relabelling) (*atomicfile.Pending, error) {
	c := change{}
	for _, r := range all {
		if temp := r.record.Temp(); temp != "" {
			c[filepath.Base(s.path(r.pod.Key))] = filepath.Base(temp)
		}
	}
	data, err := encode(c)
	if err != nil {
		return nil, err
	}
	p, err := atomicfile.Prepare(filepath.Join(s.dir, changeFile), data)
	if err != nil {
		return nil, fmt.Errorf("pod records: %w", err)
	}
	return p, nil
}

// loadChange returns the change that a crash has interrupted, empty if there is none. Without one
// that is damaged each record is still whole.
func (s store) loadChange() (c change, err error) {
	data, err := os.ReadFile(filepath.Join(s.dir, changeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return nil, fmt.Errorf("change of pod records: %w", err)
	}
	return c, nil
}

// file returns where the content of a record is.
func (c change) file(record string) string {
	if temp, there := c[filepath.Base(record)]; there {
		temp = filepath.Join(filepath.Dir(record), filepath.Base(temp))
		if _, err := os.Lstat(temp); err == nil {
			return temp
		}
	}
	return record
}

// finishChange ends the change that a crash has interrupted. It needs no space on the disk.
func (s store) finishChange() error {
	c, damaged := s.loadChange()
	if damaged == nil && c == nil {
		return nil
	}
	for name := range c {
		record := filepath.Join(s.dir, filepath.Base(name))
		temp := c.file(record)
		if _, err := os.Lstat(record); err != nil || temp == record { // removed since, or in place
			continue
		}
		if err := atomicfile.Replace(temp, record); err != nil {
			return fmt.Errorf("pod records: %w", err)
		}
	}
	return errors.Join(damaged, s.removeChange())
}

func (s store) removeChange() error {
	if err := atomicfile.Remove(filepath.Join(s.dir, changeFile)); err != nil {
		return fmt.Errorf("change of pod records: %w", err)
	}
	return nil
}
