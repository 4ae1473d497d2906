package overlay

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weirnet/weir/internal/unixsocket"
)

// uapi is the socket of wg(8): DIR/NAME.sock.
type uapi struct {
	dev  *Device
	ln   net.Listener
	done sync.WaitGroup
}

func listenUAPI(d *Device) (*uapi, error) {
	if err := os.MkdirAll(d.config.UAPI, 0o700); err != nil {
		return nil, fmt.Errorf("overlay: socket for wg: %w", err)
	}
	// The interface is ours, so an existing socket of its name is a leftover.
	ln, err := unixsocket.Listen(filepath.Join(d.config.UAPI, d.tun.name+".sock"))
	if err != nil {
		return nil, fmt.Errorf("overlay: socket for wg: %w", err)
	}
	u := &uapi{dev: d, ln: ln}
	u.done.Go(u.accept)
	return u, nil
}

func (u *uapi) close() error {
	err := u.ln.Close()
	u.done.Wait()
	return err
}

func (u *uapi) accept() {
	for {
		c, err := u.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			time.Sleep(acceptAgain)
			continue
		}
		u.done.Go(func() { u.serve(c) })
	}
}

// acceptAgain is how long after a failure the next client is accepted.
const acceptAgain = 100 * time.Millisecond

// uapiTimeout is how long a client may take for an operation.
const uapiTimeout = 5 * time.Second

// requestLimit is the largest request, in bytes; a peer takes a few hundred.
const requestLimit = 16 << 20

// serve answers one client: operations of lines that end in an empty one.
func (u *uapi) serve(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for {
		c.SetDeadline(time.Now().Add(uapiTimeout))
		if !lines.Scan() {
			return
		}
		op, size := lines.Text(), 0
		var body []string
		for lines.Scan() && lines.Text() != "" {
			if size += len(lines.Text()); size > requestLimit {
				return
			}
			body = append(body, lines.Text())
		}
		if lines.Err() != nil {
			return
		}
		answer := u.answer(op, body)
		if answer == "" {
			return
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// answer executes an operation and returns the reply.
func (u *uapi) answer(op string, body []string) string {
	text, err := "", error(nil)
	switch op {
	case "get=1":
		text, err = u.dev.wg.IpcGet()
		// the line of a peer that has none yet
		text = u.dev.bind.trueSizes(strings.ReplaceAll(text, "endpoint=\n", ""))
	case "set=1":
		err = u.dev.wg.IpcSet(addPeerKeys(body))
	default:
		return ""
	}
	errno := int64(0)
	if err != nil {
		errno = 5 // EIO, unless the library knows better
		var status interface{ ErrorCode() int64 }
		if errors.As(err, &status) {
			errno = status.ErrorCode()
		}
	}
	return fmt.Sprintf("%serrno=%d\n\n", text, errno)
}

// trueSizes replaces the library's count of sent bytes by ours: it includes 8 bytes of each
// datagram that never leave.
func (b *bind) trueSizes(text string) string {
	var out strings.Builder
	var p *peerEndpoint
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name == "public_key" {
			key, err := parseHexKey(value)
			if p = nil; err == nil {
				p = b.peerOf(key)
			}
		}
		if name == "tx_bytes" && p != nil {
			line = fmt.Sprintf("tx_bytes=%d\n", p.sent.Load())
		}
		out.WriteString(line)
	}
	return out.String()
}

// addPeerKeys adds the peer's key to each endpoint line, and an endpoint line to peers without one:
// ParseEndpoint finds a peer by its key.
func addPeerKeys(body []string) string {
	var b strings.Builder
	key, tied := "", true
	finish := func() {
		if !tied {
			fmt.Fprintf(&b, "endpoint=%s@\n", key)
		}
	}
	for _, line := range body {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "public_key":
			finish()
			key, tied = value, false
		case "endpoint":
			line, tied = "endpoint="+key+"@"+value, true
		case "remove":
			tied = true
		}
		b.WriteString(line + "\n")
	}
	finish()
	return b.String()
}
