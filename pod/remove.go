package pod

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirnet/weir/internal/nl"
)

// Remove removes all that a Manager with these records made, without one: interfaces, gateway
// addresses and records. The kernel's settings stay: the owner of the Manager restores them. No
// Manager may be using dir.
func Remove(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	conn, err := nl.Open(nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	pods, damaged, err := s.load()
	errs := []error{err, s.sweep()}
	for _, b := range damaged {
		errs = append(errs, removeDamaged(conn, s, b.hostIf))
	}
	for _, p := range pods {
		if err := removeHostEnd(conn, p); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, s.remove(p.Key))
	}
	aside, err := filepath.Glob(filepath.Join(dir, "*"+recordEnding+".*"))
	for _, file := range aside { // of pods that are gone
		name, _, _ := strings.Cut(filepath.Base(file), recordEnding)
		err = errors.Join(err, removeDamaged(conn, s, name))
	}
	errs = append(errs, err, removeGateways(conn, s))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(dir)
}

func removeGateways(conn *nl.Conn, s store) error {
	gateways, err := s.loadGateways()
	if err != nil {
		return err
	}
	if err := deleteGateways(conn, gateways); err != nil {
		return err
	}
	return s.removeGateways()
}
