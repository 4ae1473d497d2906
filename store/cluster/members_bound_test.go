package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirnet/weir/store"
)

// manyLabels returns a pod that has so many addresses of 10.0.2.0/24, and so many labels.
func manyLabels(number, addrs, labels int) Pod {
	p := Pod{Name: fmt.Sprintf("p%02d", number), Labels: map[string]string{}}
	for i := range addrs {
		p.Addrs = append(p.Addrs, netip.AddrFrom4([4]byte{10, 0, 2, byte(number*8 + i)}))
	}
	for i := range labels {
		p.Labels[fmt.Sprintf("k%02d", i)] = "v"
	}
	return p
}

// largeHost is a host whose pods may have as many labels as a pod can have.
func largeHost(t *testing.T, a *authority) *Node {
	t.Helper()
	n := a.node(t, "b", "10.0.2.0/24")
	n.Labels = nil
	for i := range maxNodeParts {
		n.Labels = append(n.Labels, fmt.Sprintf("k%02d", i))
	}
	return a.sign(t, n)
}

// TestMembersAreBounded: a stolen host that writes pods with all addresses and labels that they can
// have costs the others a small part of that. What it had before stays, and the reason is named.
func TestMembersAreBounded(t *testing.T) {
	a := newAuthority()
	d := NewDesired("a", a.trust, nil)
	n := largeHost(t, a)
	var changes []store.Change
	for number := range maxChunks {
		var p Pods
		for i := range MaxChunkPods {
			p.Pods = append(p.Pods, manyLabels(i, maxPodAddrs, maxPodLabels))
		}
		p.Version = layout
		value, err := json.Marshal(&p) // Encode would refuse it
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, store.Change{Entry: store.Entry{Key: chunkKey("b", number),
			Value: value}})
	}
	few := put(t, chunkKey("b", 0), &Pods{Pods: []Pod{manyLabels(0, 1, 1)}})
	d.Apply([]store.Change{put(t, NodeTree+"b", n), few})
	e := d.Apply(changes)
	if len(e.Claims) != maxChunks || !strings.Contains(e.Claims[0].Error(), "members of tables") {
		t.Errorf("%d values are refused: %v", len(e.Claims), e.Claims[:min(1, len(e.Claims))])
	}
	if all := d.labels.all(); len(all) != 1 {
		t.Errorf("a host has %d members of tables", len(all))
	}
}

// TestMembersGrow: pods that get more and more labels, one by one, are refused from the same number
// on as those that have them at once, and counted right after that.
func TestMembersGrow(t *testing.T) {
	a := newAuthority()
	n := largeHost(t, a)
	d := NewDesired("a", a.trust, nil)
	d.Apply([]store.Change{put(t, NodeTree+"b", n)})
	p := &Pods{}
	for i := range MaxChunkPods {
		p.Pods = append(p.Pods, manyLabels(i, 4, 8))
	}
	if e := d.Apply([]store.Change{put(t, chunkKey("b", 0), p)}); len(e.Claims) > 0 {
		t.Fatalf("%d members: %v", p.members(), e.Claims)
	}
	for round := range 3 {
		p.Pods[7] = manyLabels(7, 4, 9)
		value, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		more := store.Change{Entry: store.Entry{Key: chunkKey("b", 0), Value: value}}
		if e := d.Apply([]store.Change{more}); len(e.Claims) != 1 {
			t.Errorf("round %d: %d members are taken", round, p.members())
		}
		p.Pods[7] = manyLabels(7, 4, 8-round)
		if e := d.Apply([]store.Change{put(t, chunkKey("b", 0), p)}); len(e.Claims) > 0 {
			t.Errorf("round %d: %v", round, e.Claims)
		}
		p.Pods[8] = manyLabels(8, 4, 8+round)
		if e := d.Apply([]store.Change{put(t, chunkKey("b", 0), p)}); len(e.Claims) > 0 {
			t.Errorf("round %d: %v", round, e.Claims)
		}
		p.Pods[7], p.Pods[8] = manyLabels(7, 4, 8), manyLabels(8, 4, 8)
		if e := d.Apply([]store.Change{put(t, chunkKey("b", 0), p)}); len(e.Claims) > 0 {
			t.Errorf("round %d: %v", round, e.Claims)
		}
	}
}

// TestChunksOfManyLabels: pods with many labels are placed in chunks that others accept.
func TestChunksOfManyLabels(t *testing.T) {
	var pods []Pod
	for i := range MaxChunkPods {
		pods = append(pods, manyLabels(i, maxPodAddrs, maxPodLabels))
	}
	puts, err := PodChunkPuts("b", nil, pods)
	if err != nil || len(puts) != MaxChunkPods/2 {
		t.Fatalf("%d chunks, %v", len(puts), err)
	}
	for _, p := range puts {
		if _, err := Decode[Pods](p.Value); err != nil {
			t.Error(err)
		}
	}
}
