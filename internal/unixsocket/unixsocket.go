// Package unixsocket listens on unix sockets that are their owner's alone from the moment they
// exist.
package unixsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen makes a socket of mode 0600, in the place of one that is there: whoever calls knows that
// nobody listens on that. There is no moment at which others could connect: Linux gives the file
// the mode of the socket's inode less the umask (unix_bind), so that it is set before.
func Listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) (err error) {
		if bad := conn.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); bad != nil {
			return bad
		}
		return err
	}}
	return c.Listen(context.Background(), "unix", path)
}
