package offline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// Question is a packet at a hook, in text form:
//
//	[in|out] [via IFACE | recv IFACE | xmit IFACE]... PACKET
//
// PACKET is build.ParseText's form. Without a direction it comes in. via is recv on the way in and
// xmit on the way out.
type Question struct {
	dir        firewall.Direction
	recv, xmit string // names of interfaces, "" for none
	Packet     packet.Packet
	bytes      []byte
}

// questionExample is a question that can be read.
const questionExample = "write it like 'in via eth0 tcp 192.0.2.9:4000 -> 192.0.2.1:22 flags S'"

// ParseQuestion reads a question.
func ParseQuestion(text string) (q Question, err error) {
	words := strings.Fields(text)
	if len(words) > 0 && (words[0] == "in" || words[0] == "out") {
		if words[0] == "out" {
			q.dir = firewall.Out
		}
		words = words[1:]
	}
	for len(words) > 1 {
		which := words[0]
		if which == "via" && q.dir == firewall.In {
			which = "recv"
		}
		switch which {
		case "recv":
			q.recv = words[1]
		case "xmit", "via":
			q.xmit = words[1]
		default:
			which = ""
		}
		if which == "" {
			break
		}
		words = words[2:]
	}
	if q.dir == firewall.In && q.xmit != "" {
		return q, errors.New("a packet that comes in has no transmit interface yet")
	}
	if q.Packet, q.bytes, err = build.ParseText(strings.Join(words, " ")); err != nil {
		return q, &api.Error{Message: err.Error(), Advice: questionExample}
	}
	return q, nil
}

// hook finds the interfaces of a question among those of the host.
func (q Question) hook(ifs []firewall.Interface) (firewall.Hook, error) {
	h := firewall.Hook{Dir: q.dir}
	for _, side := range []struct {
		name  string
		index *uint32
	}{{q.recv, &h.Recv}, {q.xmit, &h.Xmit}} {
		if side.name == "" {
			continue
		}
		for _, i := range ifs {
			if i.Name == side.name {
				*side.index = i.Index
			}
		}
		if *side.index == 0 {
			return h, &api.Error{Message: fmt.Sprintf("there is no interface %q", side.name),
				Advice: "ip link lists those of the host"}
		}
	}
	return h, nil
}
