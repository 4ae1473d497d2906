package overlay

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// shortOfFiles is a listener whose first Accept fails as without descriptors.
type shortOfFiles struct {
	net.Listener
	failed bool
}

func (l *shortOfFiles) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestSocketOutlivesFailures: the socket of wg(8) serves clients again after the process had no
// descriptor for one, and ends when it is closed.
func TestSocketOutlivesFailures(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/sock")
	if err != nil {
		t.Fatal(err)
	}
	u := &uapi{ln: &shortOfFiles{Listener: l}}
	u.done.Go(u.accept)
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	// an unknown operation ends the connection
	if _, err := io.WriteString(c, "no=1\n\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := u.close(); err != nil {
		t.Error(err)
	}
}
