package pod

import (
	"errors"
	"io/fs"
	"os"
)

// Recorded reads the records of the pods that are whole and whose interface is there, which find
// looks for by its name and alias. It changes nothing, so that rules can be told of pods before a
// Manager takes them over. Records that cannot be read are left out and told of.
func Recorded(dir string, find func(name, alias string) (index uint32)) ([]Pod, error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	records, damaged, err := store{dir}.load()
	for _, b := range damaged {
		err = errors.Join(err, b.err)
	}
	var all []Pod
	for _, p := range records {
		if p.Index = find(p.HostIf, aliasPrefix+p.Key); p.Ready && p.Index != 0 {
			all = append(all, *p)
		}
	}
	return all, err
}
