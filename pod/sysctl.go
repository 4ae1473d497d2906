package pod

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// sysctls is /proc/sys/net of one network namespace. It is opened once and files are found below it: under the name /proc/sys/net the kernel
// keeps an entry for each namespace in which that was ever opened, and a search for it goes through those of all pods.
type sysctls struct{ root *os.Root }

// openSysctls opens that of the calling thread's namespace.
func openSysctls() (sysctls, error) {
	root, err := os.OpenRoot("/proc/sys/net")
	if err != nil {
		return sysctls{}, fmt.Errorf("open the kernel's settings: %w", err)
	}
	return sysctls{root}, nil
}

// set writes values. What the kernel does not have (IPv6 switched off at boot) is passed over.
func (s sysctls) set(values map[string]string) error {
	for key, value := range values {
		err := s.write(key, value)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("set %s: %w", key, err)
		}
	}
	return nil
}

func (s sysctls) write(key, value string) error {
	f, err := s.root.OpenFile(key, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (s sysctls) close() error { return s.root.Close() }
