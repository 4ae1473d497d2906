package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// sysctls are the directories ipv4 and ipv6 of /proc/sys/net of one network namespace. They are
// opened once, and files are opened relative to them. Under each of the two names the kernel keeps
// an entry for every namespace in which it was ever opened. A lookup of the name goes through those
// of all pods.
type sysctls map[string]*os.Root

// openSysctls opens one of the calling thread's namespace, or both.
func openSysctls(families ...string) (sysctls, error) {
	s := sysctls{}
	for _, family := range families {
		root, err := os.OpenRoot("/proc/sys/net/" + family)
		if errors.Is(err, fs.ErrNotExist) { // IPv6 was switched off at boot
			continue
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open the kernel's settings: %w", err), s.close())
		}
		s[family] = root
	}
	return s, nil
}

// set writes values by name, like "ipv4/ip_forward". Settings that the kernel does not have are
// skipped.
func (s sysctls) set(values map[string]string) error {
	for key, value := range values {
		family, name, _ := strings.Cut(key, "/")
		if s[family] == nil {
			continue
		}
		err := writeSetting(s[family], name, value)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set %s: %w", key, err)
		}
	}
	return nil
}

func writeSetting(in *os.Root, name, value string) error {
	f, err := in.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (s sysctls) close() error {
	var errs []error
	for _, root := range s {
		errs = append(errs, root.Close())
	}
	return errors.Join(errs...)
}
