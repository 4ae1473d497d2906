// Package device is WireGuard's device of github.com/tailscale/wireguard-go, copied: handshakes,
// sessions, timers, and a path for packets. This file is not a copy. It gives package overlay what
// it needs to seal and open most transport messages itself, in the place of that path. These are
// the keys, the counters and the timers of a session.
//
// The library keeps all of them to itself, so the package that has them is copied. In the copied
// files only the lines that copy_test.go lists are changed, which compares them with the library's.
package device

import (
	"crypto/cipher"
	"net/netip"
	"time"

	"github.com/tailscale/wireguard-go/conn"
)

// HandshakeEndpoint is a conn.Endpoint that learns which handshake messages from it are authentic
// and new, or were dropped. The calls come from several goroutines.
type HandshakeEndpoint interface {
	// Initiated is called for an initiation of the peer with this key. The goroutine that calls it
	// sends the response next.
	Initiated(key [32]byte)
	// Responded is called for the response to our initiation with this index, before anything is
	// sent in the new session.
	Responded(key [32]byte, index uint32)
	// Dropped is called for a handshake message that was dropped because too many wait.
	Dropped()
}

func (peer *Peer) initiated(from conn.Endpoint) {
	if e, ok := from.(HandshakeEndpoint); ok {
		e.Initiated(peer.handshake.remoteStatic)
	}
}

func (peer *Peer) responded(from conn.Endpoint, index uint32) {
	if e, ok := from.(HandshakeEndpoint); ok {
		e.Responded(peer.handshake.remoteStatic, index)
	}
}

func dropped(from conn.Endpoint) {
	if e, ok := from.(HandshakeEndpoint); ok {
		e.Dropped()
	}
}

// IsUp reports whether the device is up.
func (device *Device) IsUp() bool { return device.isUp() }

// MTU is the interface's MTU, beyond which packets are not padded.
func (device *Device) MTU() int { return int(device.tun.mtu.Load()) }

// WriteFailed logs that received packets could not be written to the interface.
func (device *Device) WriteFailed(err error) {
	if !device.isClosed() {
		device.log.Errorf("Failed to write packets to TUN device: %v", err)
	}
}

// PeerTo returns the peer that has the address, or nil.
func (device *Device) PeerTo(dst netip.Addr) *Peer {
	return device.allowedips.LookupFromPacket(netip.Addr{}, dst, nil)
}

// Session returns the session that a received transport message names, and its peer; nil if there
// is none, or if it is too old to receive.
func (device *Device) Session(index uint32, now time.Time) (*Peer, *Keypair) {
	entry := device.indexTable.Lookup(index)
	if entry.keypair == nil || entry.keypair.created.Add(RejectAfterTime).Before(now) {
		return nil, nil
	}
	return entry.peer, entry.keypair
}

// Send returns what seals with the session's key, and the other end's index of the session.
func (pair *Keypair) Send() (cipher.AEAD, uint32) { return pair.send, pair.remoteIndex }

// Receive returns what opens with the session's key.
func (pair *Keypair) Receive() cipher.AEAD { return pair.receive }

// Accept reports whether a message with this counter may be received: it never was, and is not too
// old. It is called for authentic messages only, by one goroutine at a time.
func (pair *Keypair) Accept(counter uint64) bool {
	return pair.replayFilter.ValidateCounter(counter, RejectAfterMessages)
}

// Key is the peer's public key.
func (peer *Peer) Key() NoisePublicKey { return peer.handshake.remoteStatic }

// Reserve returns the session to seal n messages with and the counter of the first. It returns nil
// when no session may be used, so that the packets have to wait for a handshake. What waits in the
// library are empty packets, whose order does not matter.
func (peer *Peer) Reserve(n int, now time.Time) (pair *Keypair, first uint64) {
	if !peer.timersActive() {
		return nil, 0
	}
	pair = peer.keypairs.Current()
	if pair == nil || now.Sub(pair.created) >= RejectAfterTime ||
		pair.sendNonce.Load() >= RejectAfterMessages {
		return nil, 0
	}
	end := pair.sendNonce.Add(uint64(n))
	if end > RejectAfterMessages {
		pair.sendNonce.Store(RejectAfterMessages)
		return nil, 0
	}
	return pair, end - uint64(n)
}

// MayBegin reports whether a handshake may begin: none did lately.
func (peer *Peer) MayBegin() bool {
	peer.handshake.mutex.RLock()
	defer peer.handshake.mutex.RUnlock()
	return time.Since(peer.handshake.lastSentHandshake) >= RekeyTimeout
}

// Begin begins a handshake if one may, for packets that wait for a session, or because the session
// is old. The library does the same where it sends (SendStagedPackets, keepKeyFreshSending).
func (peer *Peer) Begin() {
	if peer.timersActive() {
		// the library has logged why, and tries again
		_ = peer.SendHandshakeInitiation(false)
	}
}

// SendSealed sends transport messages with data. Each has MessageEncapsulatingTransportSize bytes
// in front. It reports whether the session is to be replaced by a new one (keepKeyFreshSending).
func (peer *Peer) SendSealed(messages [][]byte) (old bool) {
	peer.timersAnyAuthenticatedPacketTraversal()
	peer.timersAnyAuthenticatedPacketSent()
	err := peer.SendBuffers(messages)
	peer.timersDataSent()
	if err != nil {
		peer.device.log.Errorf("%v - Failed to send data packets: %v", peer, err)
		return false
	}
	return peer.sessionIsOld(time.Now())
}

// sessionIsOld reports whether data that was sent is a reason for a new session.
func (peer *Peer) sessionIsOld(now time.Time) bool {
	pair := peer.keypairs.Current()
	return pair != nil && (peer.handshakeOnUserSend.Load() ||
		pair.sendNonce.Load() > RekeyAfterMessages ||
		pair.isInitiator && now.Sub(pair.created) > RekeyAfterTime)
}

// Received is called after the first accepted message of a batch. The first message of a session
// that the other end began confirms it: then it returns true, and the session may be used.
//
// It is called by the goroutine that reads the socket. Closing the socket waits for that one, and
// keeps others from sending meanwhile. So what may send is done by another goroutine.
func (peer *Peer) Received(pair *Keypair) (confirmed bool) {
	if confirmed = peer.ReceivedWithKeypair(pair); confirmed {
		peer.device.config.metrics.HandshakeResponderCompleted.Add(1)
		peer.timersHandshakeComplete()
		go func() {
			peer.SendPriorityMessage()
			peer.SendStagedPackets()
		}()
	}
	return confirmed
}

// ReceivedAll is called after a batch of accepted messages, with their size on the wire, and
// whether there were data. It is called as Received is.
func (peer *Peer) ReceivedAll(size int, data bool) {
	peer.rxBytes.Add(uint64(size))
	if !peer.timers.sentLastMinuteHandshake.Load() {
		pair := peer.keypairs.Current()
		if pair != nil && pair.isInitiator &&
			time.Since(pair.created) > RejectAfterTime-KeepaliveTimeout-RekeyTimeout &&
			!peer.timers.sentLastMinuteHandshake.Swap(true) {
			go peer.SendHandshakeInitiation(false)
		}
	}
	peer.timersAnyAuthenticatedPacketTraversal()
	peer.timersAnyAuthenticatedPacketReceived()
	if data {
		peer.timersDataReceived()
	}
}

// Running reports whether the peer takes part: it was started and not removed.
func (peer *Peer) Running() bool { return peer.runningState.isRunning.Load() }

// mayHandshake reports whether a host may have another handshake under load. Those of an IPv6 /64
// count as one, as in Linux: a single host may have all of its addresses, and the workers for
// handshakes would have no time for others.
func (device *Device) mayHandshake(a netip.Addr) bool {
	if a = a.Unmap().WithZone(""); a.Is6() {
		p, _ := a.Prefix(64) // cannot fail
		a = p.Addr()
	}
	return device.rate.limiter.Allow(a)
}
