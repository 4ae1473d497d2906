package device

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"github.com/tailscale/wireguard-go/tun"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/weirnet/weir/overlay/transport"
)

// newPair returns the two ends of a session.
func newPair(t *testing.T, initiator bool, age time.Duration) *Keypair {
	t.Helper()
	send, err := chacha20poly1305.New(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return &Keypair{send: send, receive: send, isInitiator: initiator, remoteIndex: 0xcafe,
		localIndex: 0xcafe, created: time.Now().Add(-age)}
}

// bare returns a device and a peer of which nothing runs.
func bare(t *testing.T) (*Device, *Peer) {
	t.Helper()
	d := &Device{log: NewLogger(LogLevelSilent, ""), config: defaultConfig()}
	d.config.metrics.fillNils()
	d.indexTable.Init()
	d.state.state.Store(uint32(deviceStateUp))
	d.tun.mtu.Store(1420)
	p := &Peer{device: d}
	p.queue.staged = make(chan *QueueOutboundElementsContainer, 1)
	p.timersInit()
	p.runningState.isRunning.Store(true)
	t.Cleanup(p.timersStop)
	return d, p
}

// TestSealedAsTheLibraryDoes: a message of ours is that of the library, to the byte.
func TestSealedAsTheLibraryDoes(t *testing.T) {
	d, _ := bare(t)
	pair := newPair(t, true, 0)
	var s transport.Sealer
	s.Use(pair.Send())
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 3000 {
		n, counter := rnd.IntN(3000), rnd.Uint64()
		if round < 1500 {
			n = round
		}
		if round%10 == 0 {
			d.tun.mtu.Store(int32(rnd.IntN(1500)))
		}
		theirs := newPacketBuf(4000, func(*packetBuf) {})
		for i := range n {
			theirs.slab[100+i] = byte(i)
		}
		ours := bytes.Clone(theirs.slab)
		e := &QueueOutboundElement{buffer: theirs, keypair: pair, nonce: counter,
			packet: theirs.slab[100 : 100+n], plaintextOffset: 100}
		c := &QueueOutboundElementsContainer{elems: []*QueueOutboundElement{e}}
		c.filling.Add(1)
		d.queue.encryption = &outboundQueue{c: make(chan *QueueOutboundElementsContainer, 1)}
		d.queue.encryption.c <- c
		close(d.queue.encryption.c)
		d.RoutineEncryption(1)
		want := e.packet[MessageEncapsulatingTransportSize:]
		if got := s.Seal(ours, 100, n, d.MTU(), counter); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, MTU %d: %d bytes, the library %d", n, d.MTU(), len(got), len(want))
		}
	}
}

// TestAccept is a model test. Whatever order messages come in, each counter is accepted once, while
// it is at most a window older than the newest, and never at or beyond the limit.
func TestAccept(t *testing.T) {
	const window = 8128 // (128 - 1) * 64
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		pair := newPair(t, false, 0)
		seen, newest := map[uint64]bool{}, uint64(0)
		at := uint64(0)
		if seed%4 == 1 {
			at = RejectAfterMessages - 40000
		}
		for range 60000 {
			switch rnd.IntN(20) {
			case 0:
				at += rnd.Uint64N(3 * window)
			default:
				at++
			}
			counter := at
			switch rnd.IntN(4) {
			case 0:
				counter -= min(counter, rnd.Uint64N(2*window))
			case 1:
				counter -= min(counter, rnd.Uint64N(70))
			}
			want := counter < RejectAfterMessages && !seen[counter] &&
				(counter > newest || newest-counter <= window)
			if got := pair.Accept(counter); got != want {
				t.Fatalf("seed %d: counter %d, newest %d: %v, want %v", seed, counter, newest, got,
					want)
			}
			if want {
				seen[counter] = true
				newest = max(newest, counter)
			}
		}
	}
}

// TestReserve: counters are used once and in a row, and none when the session may not be used.
func TestReserve(t *testing.T) {
	d, p := bare(t)
	now := time.Now()
	may := func() bool {
		pair, _ := p.Reserve(3, now)
		return pair != nil
	}
	if may() {
		t.Error("without a session")
	}
	pair := newPair(t, true, RejectAfterTime-time.Minute)
	p.keypairs.current = pair
	for want := range uint64(100) {
		if got, first := p.Reserve(3, now); got != pair || first != want*3 {
			t.Fatalf("first counter %d, want %d", first, want*3)
		}
	}
	if now = time.Now().Add(time.Minute); may() {
		t.Error("with a session that is too old")
	}
	now = time.Now()
	p.runningState.isRunning.Store(false)
	if may() {
		t.Error("of a peer that was removed")
	}
	p.runningState.isRunning.Store(true)
	d.state.state.Store(uint32(deviceStateDown))
	if may() {
		t.Error("while the device is down")
	}
	d.state.state.Store(uint32(deviceStateUp))
	pair.sendNonce.Store(RejectAfterMessages - 5)
	if got, first := p.Reserve(3, now); got == nil || first != RejectAfterMessages-5 {
		t.Errorf("the last counters: %d", first)
	}
	if may() {
		t.Error("beyond the last counter")
	}
	if n := pair.sendNonce.Load(); n != RejectAfterMessages || may() {
		t.Errorf("the session is not used up: %d", n)
	}
}

// TestOldSession: a session is replaced when it is old, was used often, or the next handshake was
// scheduled. The end that did not begin it does not replace it because of its age.
func TestOldSession(t *testing.T) {
	_, p := bare(t)
	now := time.Now()
	if p.sessionIsOld(now) {
		t.Error("without a session")
	}
	pair := newPair(t, true, 0)
	p.keypairs.current = pair
	later := pair.created.Add(RekeyAfterTime)
	if p.sessionIsOld(later) || !p.sessionIsOld(later.Add(1)) {
		t.Error("by its age")
	}
	if pair.isInitiator = false; p.sessionIsOld(later.Add(1)) {
		t.Error("by its age, at the other end")
	}
	pair.sendNonce.Store(RekeyAfterMessages)
	if p.sessionIsOld(now) {
		t.Error("by the last message of a new one")
	}
	if pair.sendNonce.Add(1); !p.sessionIsOld(now) {
		t.Error("by its messages")
	}
	pair.sendNonce.Store(0)
	if p.handshakeOnUserSend.Store(true); !p.sessionIsOld(now) {
		t.Error("by a wish")
	}
}

// TestSession: a message that names no session, or one that is too old, has none.
func TestSession(t *testing.T) {
	d, p := bare(t)
	pair := newPair(t, false, 0)
	index, err := d.indexTable.NewIndexForHandshake(p, &p.handshake)
	if err != nil {
		t.Fatal(err)
	}
	if _, got := d.Session(index, time.Now()); got != nil {
		t.Error("before the handshake ends")
	}
	d.indexTable.SwapIndexForKeypair(index, pair)
	if q, got := d.Session(index, time.Now()); q != p || got != pair {
		t.Error("not found")
	}
	if _, got := d.Session(index+1, time.Now()); got != nil {
		t.Error("another index")
	}
	if _, got := d.Session(index, time.Now().Add(RejectAfterTime+time.Second)); got != nil {
		t.Error("too old")
	}
	d.DeleteKeypair(&Keypair{localIndex: index})
	if _, got := d.Session(index, time.Now()); got != nil {
		t.Error("deleted")
	}
}

// batchTUN and batchBind take packets in batches, and do nothing else.
type (
	batchTUN  struct{ tun.Device }
	batchBind struct{ conn.Bind }
)

func (batchTUN) BatchSize() int  { return 128 }
func (batchBind) BatchSize() int { return 128 }

// dropCount counts the messages from an endpoint that were dropped.
type dropCount struct {
	conn.Endpoint
	HandshakeEndpoint
	n int
}

func (c *dropCount) Dropped() { c.n++ }

// TestQueuedHandshakesAreSmall: what waits for the workers of handshakes holds memory for one
// message, not all into which it was received: any host can send a thousand. Those for which there
// is no place are counted.
func TestQueuedHandshakesAreSmall(t *testing.T) {
	d, _ := bare(t)
	d.tun.device, d.net.bind = batchTUN{}, batchBind{}
	d.PopulatePools()
	const count = 100
	d.queue.handshake = newHandshakeQueue(count - 5)
	d.queue.decryption = newInboundQueue(1)
	d.net.stopping.Add(1)
	from := new(dropCount)
	sent := byte(0)
	receive := func(slab []byte, packets []conn.ReceivedPacket) (int, error) {
		if sent == count {
			return 0, net.ErrClosed
		}
		clear(slab[:400])
		slab[0], slab[100] = MessageInitiationType, sent
		slab[200] = 9 // of no type
		sent++
		packets[0] = conn.ReceivedPacket{Offset: 0, Size: MessageInitiationSize,
			Endpoint: from}
		packets[1] = conn.ReceivedPacket{Offset: 200, Size: MessageInitiationSize}
		return 2, nil
	}
	d.RoutineReceiveIncoming(2, receive)
	if from.n != 5 {
		t.Errorf("%d dropped messages are counted, not 5", from.n)
	}
	for want := range byte(count - 5) {
		e := <-d.queue.handshake.c
		if len(e.packet) != MessageInitiationSize || e.packet[0] != MessageInitiationType ||
			e.packet[100] != want {
			t.Fatalf("message %d is % x", want, e.packet)
		}
		if n := len(e.buffer.slab); n > 2048 {
			t.Fatalf("message %d holds %d bytes", want, n)
		}
		e.buffer.decRef()
	}
}

// TestReceivingNeverSends: while the sockets are being closed, which waits for the goroutines that
// receive, these return, although it is time for a handshake and packets wait for the session.
func TestReceivingNeverSends(t *testing.T) {
	d, _ := bare(t)
	d.peers.keyMap = map[NoisePublicKey]*Peer{}
	var keys [2]NoisePrivateKey
	for i := range keys {
		var err error
		if keys[i], err = newPrivateKey(); err != nil {
			t.Fatal(err)
		}
	}
	d.staticIdentity.privateKey, d.staticIdentity.publicKey = keys[0], keys[0].publicKey()
	p, err := d.NewPeer(keys[1].publicKey())
	if err != nil {
		t.Fatal(err)
	}
	p.runningState.isRunning.Store(true)
	t.Cleanup(p.timersStop)
	p.keypairs.current = newPair(t, true, RejectAfterTime-time.Second)
	next := newPair(t, false, RejectAfterTime+time.Second)
	p.keypairs.next.Store(next)
	p.queue.staged <- nil
	d.net.Lock() // as closing does
	returned := make(chan struct{})
	go func() {
		p.ReceivedAll(100, true)
		if !p.timers.sentLastMinuteHandshake.Load() {
			t.Error("no handshake was begun")
		}
		p.Received(next)
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(5 * time.Minute):
		t.Fatal("it waits for the sockets")
	}
	if p.keypairs.Current() != next || p.rxBytes.Load() != 100 {
		t.Error("what was received has no effect")
	}
	d.state.state.Store(uint32(deviceStateClosed)) // what waits for the sockets does not send
	d.net.Unlock()
}
