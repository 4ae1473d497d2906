package peers

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/internal/atomicfile/powercut"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/overlay"
)

// noStates is an engine without states.
type noStates struct{}

func (noStates) KernelStates() iter.Seq2[firewall.State, error] {
	return func(func(firewall.State, error) bool) {}
}
func (noStates) DeleteStates(func(firewall.State) bool) (int, error) { return 0, nil }
func (noStates) DropTunnel(*soft.Engine)                             {}

// hanging is a Service of a host whose disk can hang.
type hanging struct {
	*Service
	t     *testing.T
	node  *nstest.Node
	drive *powercut.Disk
	file  string
}

func newHanging(t *testing.T) *hanging {
	h := &hanging{t: t, node: nstest.New(t).Node("n"), drive: powercut.New(t)}
	h.file = filepath.Join(h.drive.Dir, "state", "peers.json")
	h.Service = New(Config{Settings: DefaultSettings(), Files: Files{Record: h.file},
		Engine: noStates{}, Log: slog.New(slog.DiscardHandler),
		RangesChanged: func() error { return nil },
		CheckRange:    func(netip.Prefix) error { return nil },
		CheckPort:     func(uint16) error { return errors.New("no tunnel in this test") }})
	h.done.Go(h.saveAll) // without the rest of Begin: its routes would be the machine's
	return h
}

// record makes a host a peer.
func (h *hanging) record(name string, key byte, pods string) {
	h.t.Helper()
	h.atOnce(name+" becomes a peer", func() error {
		return h.AddHost(api.AddPeer{Name: name, Key: overlay.Key{key}.String(),
			Pods: []netip.Prefix{netip.MustParsePrefix(pods)}})
	})
}

// atOnce does something that has to work while the disk hangs, which it does until it is released.
func (h *hanging) atOnce(what string, do func() error) {
	h.t.Helper()
	done := make(chan error, 1)
	go func() { done <- h.node.Do(do) }()
	select {
	case err := <-done:
		if err != nil {
			h.t.Errorf("%s: %v", what, err)
		}
	case <-time.After(5 * time.Minute):
		h.t.Fatalf("%s: it waits for the disk", what)
	}
}

// onDisk waits until the file has these peers.
func (h *hanging) onDisk(want ...string) {
	h.t.Helper()
	nstest.Eventually(h.t, fmt.Sprint("the disk has ", want), func() bool {
		r, err := readRecord(h.file)
		var names []string
		for _, one := range r.Peers {
			names = append(names, one.Name)
		}
		return err == nil && slices.Equal(names, want)
	})
}

// says reports whether a problem has a text.
func (h *hanging) says(text string) bool {
	return slices.ContainsFunc(h.Problems(), func(one api.Problem) bool {
		return strings.Contains(one.What, text)
	})
}

// TestHostsOnDiskThatHangs: hosts of a cluster become peers and are removed while the disk hangs,
// and while a change by hand waits for it. The status says so, and nothing of it is lost when the
// disk answers.
func TestHostsOnDiskThatHangs(t *testing.T) {
	h := newHanging(t)
	h.record("host:a", 1, "10.88.1.0/24")
	h.record("host:b", 2, "10.88.2.0/24")
	h.onDisk("host:a", "host:b")

	release := h.drive.Hang(t)
	h.record("host:c", 3, "10.88.3.0/24")
	time.Sleep(100 * time.Millisecond) // the disk is used by now
	h.record("host:c", 3, "10.88.4.0/24")
	h.atOnce("a removal", func() error { return h.RemoveHost("host:a") })
	h.atOnce("a removal once more", func() error { return h.RemoveHost("host:a") })
	byHand := make(chan error, 1)
	go func() {
		byHand <- h.node.Do(func() error {
			_, err := h.Remove(api.RemovePeer{Name: "host:b"})
			return err
		})
	}()
	time.Sleep(100 * time.Millisecond)
	h.record("host:d", 4, "10.88.5.0/24") // behind the change by hand
	h.atOnce("the list", func() error {
		list, err := h.List()
		if len(list.Peers) != 3 {
			t.Errorf("peers: %+v", list.Peers)
		}
		return err
	})
	if got := len(h.Ranges()); got != 3 {
		t.Errorf("%d ranges: %v", got, h.Ranges())
	}
	nstest.Eventually(t, "the status says so", func() bool {
		return h.says("the disk does not answer")
	})
	if len(byHand) > 0 {
		t.Error("a change by hand is answered before it is on the disk")
	}

	release()
	if err := <-byHand; err != nil {
		t.Error(err)
	}
	h.onDisk("host:c", "host:d")
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	again := New(h.config)
	if err := h.node.Do(func() error { again.Load(); return nil }); err != nil {
		t.Fatal(err)
	}
	if got, want := again.closedRanges(), h.closedRanges(); !slices.Equal(got, want) ||
		len(got) != 5 {
		t.Errorf("closed after a start: %v, before: %v", got, want)
	}
	if h.says("disk") {
		t.Errorf("problems: %v", h.Problems())
	}
}
