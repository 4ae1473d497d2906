package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// bytesConn is a connection that has received everything already and accepts all writes.
type bytesConn struct {
	*bytes.Reader
	sent bytes.Buffer
}

func (b *bytesConn) Write(p []byte) (int, error)      { return b.sent.Write(p) }
func (b *bytesConn) Close() error                     { return nil }
func (b *bytesConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (b *bytesConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (b *bytesConn) SetDeadline(time.Time) error      { return nil }
func (b *bytesConn) SetReadDeadline(time.Time) error  { return nil }
func (b *bytesConn) SetWriteDeadline(time.Time) error { return nil }

// annsSecret is made once, because a hash is slow.
var annsSecret = hashed("ann", "secret")

// FuzzSOCKS5 gives the handshake and the parser of datagrams any input.
func FuzzSOCKS5(f *testing.F) {
	for _, s := range []string{
		"\x05\x01\x00\x05\x01\x00\x03\x09host.test\x01\xbb",
		"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50early",
		"\x05\x02\x00\x02\x01\x03ann\x06secret\x05\x03\x00\x04" + strings.Repeat("\x00", 18),
		"\x05\x01\x02\x01\x03ann\x03bad",
		"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", "\x05\xff", "\x05\x00",
		"\x00\x00\x00\x03\x01x\x00\x35payload", "\x00\x00\x01\x01\x7f\x00\x00\x01\x00\x35frag",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, input []byte, password bool) {
		s := &Server{}
		if password {
			s.Users = annsSecret
		}
		s.logins = newLoginCheck()
		conn := &bytesConn{Reader: bytes.NewReader(input)}
		r := &reader{conn: conn}
		q, reply, err := s.negotiate(newClient(s, conn), r)
		if err == nil {
			if reply != replyOK || q.host == "" || q.command != cmdConnect &&
				q.command != cmdAssociate {
				t.Fatalf("accepted %+v with reply %d", q, reply)
			}
			if password && !bytes.Contains(input, []byte("\x01\x03ann\x06secret")) {
				t.Fatalf("accepted without the password: %q", input)
			}
			// The bytes that were not taken are kept.
			left, _ := io.ReadAll(conn)
			if tail := append(r.rest(), left...); !bytes.HasSuffix(input, tail) {
				t.Fatalf("%q is not the end of %q", tail, input)
			}
		} else if reply == replyOK && bytes.HasSuffix(conn.sent.Bytes(), []byte{1, 0}) &&
			!password {
			t.Fatalf("accepted and failed: %v", err)
		}
		if q, payload, err := parseDatagram(input); err == nil {
			if q.host == "" || input[2] != 0 || !bytes.HasSuffix(input, payload) {
				t.Fatalf("datagram %+v with payload %q", q, payload)
			}
			if _, _, err := net.SplitHostPort(q.address()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzHTTP sends any input to a whole server whose dials all fail.
func FuzzHTTP(f *testing.F) {
	for _, s := range []string{
		"CONNECT host.test:443 HTTP/1.1\r\nHost: host.test:443\r\n\r\n",
		"CONNECT [::1]:443 HTTP/1.0\r\n\r\nearly",
		"CONNECT host.test HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://host.test/ HTTP/1.1\r\nHost: b\r\nProxy-Authorization: Basic YTpi\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: c\r\n\r\n",
		"POST http://host.test/x HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n" +
			"abc\r\n0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "CONNECT :80 HTTP/1.1\r\nHost: :80\r\n\r\n",
		"CONNECT a@b:80 HTTP/1.1\r\nHost: a@b:80\r\n\r\n",
		"GET http://u:p@host.test:80/ HTTP/1.1\r\nConnection: close, X\r\nX: y\r\n" +
			"Upgrade: websocket\r\n\r\n", "\x05\x01\x00\x05\x01\x00\x03\x01x\x00\x50",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 2 && input[0] == socksVersion &&
			bytes.Contains(input, []byte{socksVersion, cmdAssociate, 0}) {
			return // needs a real socket
		}
		// The clock is the bubble's: what the server waits for ends at once.
		synctest.Test(t, func(t *testing.T) { answerTo(t, input) })
	})
}

// answerTo checks what a server whose dials all fail answers to any input.
func answerTo(t *testing.T, input []byte) {
	s := &Server{Dial: func(_ context.Context, network, address string) (net.Conn, error) {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" ||
			network != "tcp" && network != "udp" {
			t.Errorf("dialled %s %q", network, address)
		}
		return nil, errors.New("no host is reachable")
	}}
	s.prepare()
	defer s.Shutdown(t.Context())
	near, far := net.Pipe()
	defer near.Close()
	s.admit(far)
	go near.Write(input)
	b, err := io.ReadAll(near)
	if err != nil || len(b) > 0 && !bytes.HasPrefix(b, []byte("HTTP/1.")) &&
		b[0] != socksVersion {
		t.Errorf("answered %q, %v", b, err)
	}
	if bytes.Contains(b, []byte(" 200 Connection established")) {
		t.Errorf("a tunnel without a connection: %q", b)
	}
}
