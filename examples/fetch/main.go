// Command fetch gets a page by HTTP over the address that answers first, and says which it was:
// fetch URL
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/weirnet/weir/eyeballs"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: fetch URL")
	}
	if err := fetch(os.Args[1], os.Stdout, os.Stderr); err != nil {
		log.Fatal("fetch: ", err)
	}
}

// fetch writes the page to out, and to messages how the connection was made.
func fetch(url string, out, messages io.Writer) error {
	dialer := &eyeballs.Dialer{Timeout: 10 * time.Second, Trace: func(e eyeballs.Event) {
		if e.Addr.IsValid() {
			fmt.Fprintln(messages, e.At.Round(time.Millisecond), e.Kind, e.Addr)
		}
	}}
	transport := dialer.Transport()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	resp, err := client.Get(url)
	var all *eyeballs.Error
	if errors.As(err, &all) {
		for _, a := range all.Attempts {
			fmt.Fprintln(messages, a.String())
		}
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(out, resp.Body)
	return err
}
