package nl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestListsAreWholeWhileLinksComeAndGo lists links while another connection makes and deletes some,
// so that the kernel interrupts dumps. The links that stay must be in every list.
func TestListsAreWholeWhileLinksComeAndGo(t *testing.T) {
	n := nstest.New(t).Node("n")
	c := n.Netlink()
	const stay = 60
	for i := range stay {
		if err := addBridge(c, fmt.Sprintf("stay%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- churn(n, stop) }()
	interruptions, dumps := 0, 0
	// Some interruptions are enough, and one is if the other goroutine seldom runs.
	for begin := time.Now(); interruptions < 5 && time.Since(begin) < 30*time.Second ||
		interruptions == 0 && time.Since(begin) < testTimeout; dumps++ {
		if _, whole, err := c.RawLinks(); err != nil {
			t.Fatal(err)
		} else if !whole {
			interruptions++
		}
		links, err := c.Links()
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, l := range links {
			there[l.Name] = true
		}
		for i := range stay {
			if name := fmt.Sprintf("stay%d", i); !there[name] {
				t.Fatalf("%s is missing from a list of %d", name, len(links))
			}
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if interruptions == 0 {
		t.Errorf("the kernel interrupted none of %d dumps: nothing was tested", dumps)
	}
}

// churn makes and deletes a link until stop is closed.
func churn(n *nstest.Node, stop <-chan struct{}) error {
	c, err := nl.Open(n.NS())
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := addBridge(c, "churn"); err != nil {
			return err
		}
		l, err := c.LinkByName("churn")
		if err != nil {
			return err
		}
		if err := c.DeleteLink(l.Index); err != nil {
			return err
		}
	}
}
