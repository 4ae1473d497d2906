package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/page"
)

const pageToken = "secret"

// servePage serves a page to at most `most` connections. Requests with the token are answered "ok".
func servePage(t *testing.T, most int) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	s := newPageServer(page.New(proves(ok), pageToken))
	go s.Serve(&pageConns{Listener: l, most: most})
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// dialPage connects and sends what may be a part of a request.
func dialPage(t *testing.T, address, text string) net.Conn {
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a request with the token and returns the status of the answer.
func ask(t *testing.T, c net.Conn) int {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n",
		pageToken)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// TestStrangersDoNotHoldThePage opens as many connections as there may be, whose requests never
// end. The owner still gets answers, also on a connection that was there before.
func TestStrangersDoNotHoldThePage(t *testing.T) {
	const most = 4
	address := servePage(t, most)
	first := dialPage(t, address, "")
	if status := ask(t, first); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for range 3 * most {
		dialPage(t, address, "POST /v1/why HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
	}
	if status := ask(t, dialPage(t, address, "")); status != http.StatusOK {
		t.Errorf("a new connection: status %d", status)
	}
	if status := ask(t, first); status != http.StatusOK {
		t.Errorf("the first connection: status %d", status)
	}
}

// TestPageConnsAreBounded: of connections with the token there are no more than that.
func TestPageConnsAreBounded(t *testing.T) {
	const most = 3
	address := servePage(t, most)
	for range most {
		ask(t, dialPage(t, address, ""))
	}
	over := dialPage(t, address, "")
	if err := over.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := over.Read(make([]byte, 1)); err == nil {
		t.Fatalf("one more: %d bytes", n)
	}
}

// TestHeadersToThePageAreBounded: who can connect cannot fill the memory by headers.
func TestHeadersToThePageAreBounded(t *testing.T) {
	c := dialPage(t, servePage(t, 1), "GET / HTTP/1.1\r\nHost: localhost\r\n")
	go io.WriteString(c, strings.Repeat("a:\r\n", 16<<10)+"\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("64 KiB of headers: %+v, %v", answer, err)
	}
}
