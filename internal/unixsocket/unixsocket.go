// Package unixsocket listens on unix sockets that only their owner can use from the moment they
// exist, and knows who connected.
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

// Listen makes a socket of mode 0600. It replaces an existing one: the caller must know that no
// process listens on that. Other users cannot connect at any moment: Linux gives the file the mode
// of the socket's inode less the umask (unix_bind), and Listen sets that mode before.
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

// Peer is the id of the process that connected and that of its user, or 0 and -1 where they are
// not known.
func Peer(c net.Conn) (pid, uid int) {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return 0, -1
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, -1
	}
	uid = -1
	err = raw.Control(func(fd uintptr) {
		cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			pid, uid = int(cred.Pid), int(cred.Uid)
		}
	})
	if err != nil {
		return 0, -1
	}
	return pid, uid
}
