package kernel

import (
	"net/netip"
	"os"
	"strconv"
	"testing"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// TestServicesAgainstTheModel is TestTranslationsAgainstTheModel with services: one with two ends,
// one with one, one that the rules refuse, and one without a pod.
func TestServicesAgainstTheModel(t *testing.T) {
	t.Parallel()
	packets := 1500
	if n, err := strconv.Atoi(os.Getenv("WEIR_DECISIONS")); err == nil {
		packets = n
	}
	f := newFrames(t, mixedRules)
	f.virtualAddresses()
	f.masquerade(2000, 2999)
	f.publish(8080, 80)
	var all []forward.Service
	for _, proto := range []packet.Proto{packet.ProtoTCP, packet.ProtoUDP} {
		for port, to := range map[int][]int{80: {80, 5000}, 53: {53}, 666: {666}, 9: nil} {
			s := forward.Service{Proto: proto, At: end(virtual[0], port)}
			for _, p := range to {
				s.Backends = append(s.Backends, forward.Backend{To: end(podA, p)})
			}
			all = append(all, s)
		}
	}
	f.setServices(all...)
	f.compare(t, packets, 0, mixedRules, func() *enginetest.Translator {
		return &enginetest.Translator{Hides: true, Services: f.engine.chosen,
			Published: map[enginetest.Port]netip.AddrPort{
				{Proto: 6, To: end(hostAddr, 8080)}:  end(podA, 80),
				{Proto: 17, To: end(hostAddr, 8080)}: end(podA, 80),
			}}
	})
}

// chosen is which backend of a service a packet goes to, as choose_backend of bpf/lib/service.h
// has it.
func (e *Engine) chosen(x enginetest.Ends) (to netip.AddrPort, is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.services[weirPublishedKey{Addr: wordsOf(x.To.Addr()), Port: x.To.Port(),
		Proto: uint8(x.Proto)}]
	if s == nil {
		return to, false
	}
	if s.Count == 0 {
		return to, true
	}
	src, dst := wordsOf(x.From.Addr()), wordsOf(x.To.Addr())
	ports := uint64(x.Proto)<<32 | uint64(x.From.Port())<<16 | uint64(x.To.Port())
	slot := hash5(s.Seed, [5]uint64{src.Hi, src.Lo, ports, dst.Hi, dst.Lo}) % serviceSlots
	b := &s.Backend[s.Slot[slot]]
	return netip.AddrPortFrom(b.Addr.addr(), uint16(b.Port)), true
}

// hash5 is that of bpf/lib/hash.h.
func hash5(seed [10]uint64, words [5]uint64) (h uint64) {
	for i, w := range words {
		h += uint64(uint32(w)+uint32(seed[2*i])) * uint64(uint32(w>>32)+uint32(seed[2*i+1]))
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}
