package agent

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestNotify(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@weir-test-" + filepath.Base(t.TempDir())} {
		address := name
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		t.Setenv("NOTIFY_SOCKET", name)
		notify("READY=1")
		l.SetReadDeadline(time.Now().Add(2 * time.Second))
		got := make([]byte, 64)
		n, err := l.Read(got)
		if err != nil || string(got[:n]) != "READY=1" {
			t.Errorf("%s: %q, %v", name, got[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", "")
	notify("READY=1") // nobody listens, nothing happens
	t.Setenv("NOTIFY_SOCKET", "/nowhere/at/all")
	notify("READY=1")
}
