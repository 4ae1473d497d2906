package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestFetch gets a page by name from a server that has only one of the addresses.
func TestFetch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, "hello")
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var out, messages strings.Builder
	if err := fetch(fmt.Sprint("http://localhost:", port, "/"), &out, &messages); err != nil {
		t.Fatalf("%v\n%s", err, messages.String())
	}
	if out.String() != "hello" ||
		!strings.Contains(messages.String(), fmt.Sprint("won 127.0.0.1:", port)) {
		t.Errorf("received %q by\n%s", out.String(), messages.String())
	}
	if err := fetch(server.URL+"/missing", io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "404") {
		t.Errorf("a page that is missing: %v", err)
	}
}

// TestFetchListsAttempts: where no server is, the messages name each address and why it failed.
func TestFetchListsAttempts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// The port of a connection: no other program can listen there meanwhile.
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	address := c.LocalAddr().String()
	var messages strings.Builder
	if err := fetch("http://"+strings.Replace(address, "127.0.0.1", "localhost", 1), io.Discard,
		&messages); err == nil {
		t.Fatal("a page from no server")
	}
	if s := messages.String(); !strings.Contains(s, address) || !strings.Contains(s, "refused") {
		t.Errorf("the attempts are not listed:\n%s", s)
	}
}
