package kernel

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// fullServices are services that have all places, with backends from a number on.
func fullServices(from int) (all []forward.Service) {
	for i := range backendPlaces / maxBackends {
		s := forward.Service{Proto: packet.ProtoTCP, At: end(virtual[0], 100+i)}
		for n := range maxBackends {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], 10<<24|88<<16|uint32(from+n))
			s.Backends = append(s.Backends, forward.Backend{
				To: end(netip.AddrFrom4(a), 80)})
		}
		all = append(all, s)
	}
	return all
}

// TestServicesShareThePlaces: when all places are taken, others can take those of backends that go
// with the same call. More backends than places are refused before anything is changed.
func TestServicesShareThePlaces(t *testing.T) {
	t.Parallel()
	v := newCluster(t, openRules)
	if forward.MaxAllBackends != backendPlaces || forward.MaxBackends != maxBackends {
		t.Error("package forward has other limits")
	}
	v.setServices(fullServices(1)...)
	for _, from := range []int{2, 1000} {
		v.setServices(fullServices(from)...)
		all, err := v.engine.Services()
		v.must(err)
		for _, s := range fullServices(from) {
			of := all[s.Key()]
			if _, there := of[s.Backends[maxBackends-1].To]; len(of) != maxBackends || !there {
				t.Errorf("service %s has %d backends", s.At, len(of))
			}
		}
	}
	more := append(fullServices(1), services(8080, v.a)[0])
	if err := v.engine.SetServices(more); err == nil {
		t.Error("more backends than places")
	}
	if all, err := v.engine.Services(); err != nil || len(all) != len(more)-1 {
		t.Errorf("after that: %d services, %v", len(all), err)
	}
}

// TestOneServiceCannotBeWritten: the others are.
func TestOneServiceCannotBeWritten(t *testing.T) {
	v := newCluster(t, openRules)
	const others = 16
	all := []forward.Service{services(8079, v.a)[0]}
	for i := range uint16(others) {
		all = append(all, services(8080+i, v.a)[0])
	}
	v.setServices(all[1:]...)
	m := v.engine.objects.Services
	for i := uint16(1); ; i++ { // until the map is full
		if err := m.Put(weirPublishedKey{Port: i}, &weirService{}); err != nil {
			break
		}
	}
	for i := range all {
		all[i].Backends = append(all[i].Backends, v.b.backend(0, 80))
	}
	if err := v.engine.SetServices(all); err == nil {
		t.Error("a service is in a map that has no space for it")
	}
	held, err := v.engine.Services()
	v.must(err)
	for i := range all[1:] {
		if n := len(held[all[1+i].Key()]); n != 2 {
			t.Errorf("service %s has %d backends", all[1+i].At, n)
		}
	}
	v.must(m.Delete(weirPublishedKey{Port: 1}))
	v.setServices(all...)
	if held, err := v.engine.Services(); err != nil || len(held) != len(all) {
		t.Errorf("with space: %d services, %v", len(held), err)
	}
}

// heldService is a service as the kernel has it.
func (v *cluster) heldService(s *forward.Service) (held weirService) {
	v.t.Helper()
	k, err := serviceKey(s)
	v.must(err)
	v.must(v.engine.objects.Services.Lookup(k, &held))
	return held
}

// TestTurnAfterFailure: a turn that could not be written has the flows divided again when it is
// written at last.
func TestTurnAfterFailure(t *testing.T) {
	v := newCluster(t, openRules)
	s := services(8080, v.a, v.b)[0]
	v.setServices(s)
	before := v.heldService(&s)
	m := v.engine.objects.Services
	closed, err := m.Clone()
	v.must(err)
	v.must(closed.Close())
	v.engine.objects.Services = closed
	s.Turn++
	err = v.engine.SetServices([]forward.Service{s})
	v.engine.objects.Services = m
	if err == nil {
		t.Fatal("a service was written to a closed map")
	}
	v.setServices(s)
	if v.heldService(&s).Seed == before.Seed {
		t.Error("the flows are divided as before")
	}
}

// TestPartsStaySeen: a part of the flows counts once until the flows are divided again, also when
// pods come and go meanwhile: a client may know where it leads.
func TestPartsStaySeen(t *testing.T) {
	f := newFrames(t, natRules)
	f.virtualAddresses()
	s := services(80, f.a)[0]
	seen := func() int {
		t.Helper()
		all, err := f.engine.SeenParts()
		f.must(err)
		return all[s.Key()]
	}
	connect := func(want uint64) {
		t.Helper()
		client := end(outsideAddr, 4000)
		f.must(f.engine.endWhere(func(*entry) bool { return true }))
		_, _, to := f.send(client, s.At, syn(99))
		f.send(to, client, build.TCP{Seq: 999, Ack: 100, Window: 1000,
			Flags: packet.FlagSYN | packet.FlagACK})
		if n := f.counted(f.a).Drawn; n != want || seen() != 1 {
			t.Errorf("%d connections are drawn and not %d, %d parts are seen", n, want, seen())
		}
	}
	f.setServices(s)
	connect(1)
	connect(1)
	s.Backends = append(s.Backends, forward.Backend{To: f.b.backend(0, 80).To, Out: true})
	f.setServices(s)
	connect(1)
	s.Backends = s.Backends[:1]
	f.setServices(s)
	connect(1)
	s.Turn++
	if f.setServices(s); seen() != 0 {
		t.Errorf("%d parts are seen when the flows were divided again", seen())
	}
	connect(2)
}

// TestServicesChangeWhatIsMe: rules take the address of a service for the host's as long as there
// is the service, also where no interface has it, and whatever was decided before.
func TestServicesChangeWhatIsMe(t *testing.T) {
	a := newAsker(t, newEngine(t),
		"add 100 deny udp from any to me\nadd 200 allow udp from any to any\n")
	host := nstest.New(t).Node("host")
	set := func(all ...forward.Service) {
		t.Helper()
		a.must(host.Do(func() error { return a.e.SetServices(all) }))
		a.udp.SrcPort++ // another flow, which looks the same to the rules
	}
	a.must(a.e.SetInterfaces([]firewall.Interface{{Index: 7, Name: "lan0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}}}))
	a.is(200)
	s := forward.Service{Proto: packet.ProtoTCP, At: end(a.ip.Dst, 80)}
	set(s)
	a.is(100)
	epoch := a.e.config.Epoch
	set(s)
	if a.e.config.Epoch != epoch {
		t.Error("the same services again have verdicts forgotten")
	}
	set()
	a.is(200)
}
