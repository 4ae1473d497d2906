package overlay

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Peers returns all peers with their status, ordered by name.
func (d *Device) Peers() ([]PeerStatus, error) {
	text, err := d.wg.IpcGet()
	if err != nil {
		return nil, fmt.Errorf("overlay: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []PeerStatus
	var s *PeerStatus
	var sec int64
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if key == "public_key" {
			s = nil
			k, err := parseHexKey(value)
			if p := d.peers[k]; err == nil && p != nil {
				list = append(list, p.status())
				s = &list[len(list)-1]
			}
		}
		if s == nil {
			continue
		}
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "last_handshake_time_sec":
			sec = n
		case "last_handshake_time_nsec":
			if sec != 0 || n != 0 {
				s.LastHandshake = time.Unix(sec, n)
			}
		case "rx_bytes":
			s.Received = uint64(n)
		}
	}
	for _, p := range d.peers {
		if p.Unencrypted {
			list = append(list, p.status())
		}
	}
	slices.SortFunc(list, func(a, b PeerStatus) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Key.String(), b.Key.String())
	})
	return list, nil
}

// sessionLife is how long the keys of a handshake serve (REJECT_AFTER_TIME).
const sessionLife = 180 * time.Second

// InSession reports whether the keys of a peer's last handshake still serve. That is by the time of
// day: a handshake far in the future was before the clock was set back, and is over soon or long.
func InSession(handshake, now time.Time) bool {
	return now.Sub(handshake).Abs() < sessionLife
}

func (p *peer) status() PeerStatus {
	s := PeerStatus{Peer: p.Peer}
	s.Endpoints, s.Pods = slices.Clone(p.Endpoints), slices.Clone(p.Pods)
	if p.Unencrypted {
		s.Path = netip.AddrPortFrom(p.routes[0].Via, 0)
		return s
	}
	s.RTT, s.Moves, s.Sent = time.Duration(p.peerEndpoint.rtt.Load()), p.peerEndpoint.moves.Load(),
		p.peerEndpoint.sent.Load()
	s.WaitFull, s.WaitLate = p.peerEndpoint.waiting.full.Load(), p.peerEndpoint.waiting.late.Load()
	s.Begun = p.peerEndpoint.begun.Load()
	if h := p.peerEndpoint.current.Load(); h != nil {
		s.Path = h.addr
	}
	return s
}

func parseHexKey(s string) (Key, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(Key{}) {
		return Key{}, errors.New("overlay: a key in this place is 64 hexadecimal digits")
	}
	return Key(b), nil
}
