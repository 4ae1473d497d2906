package pod

import (
	"errors"
	"net/netip"
	"testing"
)

func pool(t *testing.T, prefix string) *Pool {
	t.Helper()
	p, err := NewPool(netip.MustParsePrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPoolHandsOutEveryAddressOnce(t *testing.T) {
	p := pool(t, "10.88.0.0/29")
	seen := map[netip.Addr]bool{}
	for range 5 { // 8 less network, gateway, broadcast
		a, err := p.AllocateAny()
		if err != nil {
			t.Fatal(err)
		}
		if seen[a] {
			t.Fatalf("%s handed out twice", a)
		}
		seen[a] = true
	}
	for _, reserved := range []string{"10.88.0.0", "10.88.0.1", "10.88.0.7"} {
		if seen[netip.MustParseAddr(reserved)] {
			t.Errorf("%s is reserved and was handed out", reserved)
		}
	}
	if _, err := p.AllocateAny(); !errors.Is(err, ErrPoolEmpty) || !p.Full() {
		t.Fatalf("a full pool gave %v, want ErrPoolEmpty; full: %v", err, p.Full())
	}
	back := netip.MustParseAddr("10.88.0.4")
	if p.Free(back); p.Full() {
		t.Error("a pool with a free address is full")
	}
	if a, err := p.AllocateAny(); err != nil || a != back {
		t.Fatalf("AllocateAny = %v, %v, want the one that was given back, %v", a, err, back)
	}
}

func TestPoolReusesAnAddressLate(t *testing.T) {
	p := pool(t, "fd00:88::/120")
	a, err := p.AllocateAny()
	if err != nil {
		t.Fatal(err)
	}
	p.Free(a)
	for range 253 {
		b, err := p.AllocateAny()
		if err != nil {
			t.Fatal(err)
		}
		if b == a {
			t.Fatal("an address came back although others were free")
		}
		p.Free(b)
	}
}

func TestPoolAllocate(t *testing.T) {
	p := pool(t, "10.88.0.0/24")
	for _, c := range []struct{ addr, err string }{
		{"10.88.0.9", ""},
		{"10.88.0.9", "address 10.88.0.9 is in use by another pod"},
		{"10.88.0.1", "address 10.88.0.1 is reserved in the pod range 10.88.0.0/24"},
		{"10.88.0.255", "address 10.88.0.255 is reserved in the pod range 10.88.0.0/24"},
		{"10.89.0.1", "address 10.89.0.1 is not in the pod range 10.88.0.0/24"},
	} {
		err := p.Allocate(netip.MustParseAddr(c.addr))
		if got := errText(err); got != c.err {
			t.Errorf("Allocate(%s) = %q, want %q", c.addr, got, c.err)
		}
	}
}

func TestPoolRefusesBadRanges(t *testing.T) {
	for prefix, want := range map[string]string{
		"10.88.0.5/24": "pod range 10.88.0.5/24: has host bits; write 10.88.0.0/24",
		"10.88.0.0/31": "pod range 10.88.0.0/31: too small; a range needs at least four addresses",
		"224.0.0.0/24": special("224.0.0.0/24", "224.0.0.0/4"),
		"127.0.0.0/24": special("127.0.0.0/24", "127.0.0.0/8"),
		"0.0.0.0/0":    special("0.0.0.0/0", "0.0.0.0/8"),
		"240.0.0.0/4":  special("240.0.0.0/4", "255.255.255.255/32"),
		"::/96":        special("::/96", "::/127"),
		"fe80::/64":    special("fe80::/64", "fe80::/10"),
	} {
		if _, err := NewPool(netip.MustParsePrefix(prefix)); errText(err) != want {
			t.Errorf("NewPool(%s) = %q, want %q", prefix, errText(err), want)
		}
	}
}

func special(p, of string) string {
	return "pod range " + p + ": overlaps " + of + ", whose addresses no container can have; " +
		"take a private range such as 10.88.0.0/24 or fd00:88::/120"
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
