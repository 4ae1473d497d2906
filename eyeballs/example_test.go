package eyeballs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/weirnet/weir/eyeballs"
)

// An HTTP client whose connections are raced.
func Example() {
	d := &eyeballs.Dialer{Timeout: 10 * time.Second}
	client := &http.Client{Transport: d.Transport()}
	_ = client
}

// A dialer whose race ends with a finished TLS handshake, and that prints what it does.
func ExampleDialer() {
	d := &eyeballs.Dialer{
		TLS:   &tls.Config{NextProtos: []string{"h2", "http/1.1"}},
		HTTPS: true,
		Trace: func(e eyeballs.Event) { fmt.Fprintln(os.Stderr, e.At, e.Kind, e.Addr) },
	}
	conn, err := d.DialContext(context.Background(), "tcp", "www.example.com:443")
	if err != nil {
		return
	}
	defer conn.Close()
}

// The attempts of a failed dial.
func ExampleError() {
	_, err := (&eyeballs.Dialer{}).Dial("tcp4", "localhost:1")
	var all *eyeballs.Error
	if errors.As(err, &all) {
		for _, a := range all.Attempts {
			fmt.Println(a.Addr.Port(), a.Stage)
		}
	}
	// Output: 1 connect
}
