package agent

import (
	"context"
	"net"
	"sync"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/unixsocket"
)

// readersOfUser is how many connections of one user the read-only socket accepts: a user needs a
// few, and leaves the others theirs.
const readersOfUser = readers / 4

// perUser accepts so many connections of each user at once, and closes others as they come: a
// client that waits would take a descriptor, too.
type perUser struct {
	net.Listener
	most int
	uid  func(net.Conn) int

	mu   sync.Mutex
	open map[int]int // guarded by mu; connections of each user, without zeros
}

// newPerUser limits the connections of the users of a unix socket.
func newPerUser(l net.Listener, most int) *perUser {
	return &perUser{Listener: l, most: most, open: map[int]int{}, uid: unixsocket.Account}
}

// Accept implements net.Listener.
func (l *perUser) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid := l.uid(c)
		if l.add(uid) {
			return &userConn{Conn: c, uid: uid, end: sync.OnceFunc(func() { l.remove(uid) })}, nil
		}
		_ = c.Close() // the client learns of it, or has gone
	}
}

func (l *perUser) add(uid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid] >= l.most {
		return false
	}
	l.open[uid]++
	return true
}

func (l *perUser) remove(uid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[uid]--; l.open[uid] == 0 {
		delete(l.open, uid)
	}
}

// userConn is a connection of a user.
type userConn struct {
	net.Conn
	uid int
	end func() // counts it no more
}

// userAddr is the remote address of a connection, with its user.
type userAddr struct {
	net.Addr
	uid int
}

// RemoteAddr implements net.Conn. It says who the user is: the server has the connection as another
// listener wraps it.
func (c *userConn) RemoteAddr() net.Addr { return userAddr{c.Conn.RemoteAddr(), c.uid} }

// withReader is the context of the requests on a connection to the read-only socket.
func withReader(ctx context.Context, c net.Conn) context.Context {
	if a, ok := c.RemoteAddr().(userAddr); ok {
		return api.WithClientUID(ctx, a.uid)
	}
	return ctx
}

// Close implements net.Conn.
func (c *userConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}
