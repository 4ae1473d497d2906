package nstest

import (
	"io"
	"net"
	"time"
)

// testTimeout is for what has to come, on however busy a machine.
const testTimeout = 5 * time.Minute

// Eventually waits until a condition is true. It fails the test if that takes minutes.
func Eventually(t TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", testTimeout, what)
		}
	}
}

// Echo sends back what comes through the connections to a listener, until that is closed.
func Echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			io.Copy(c, c)
			c.Close()
		}()
	}
}
