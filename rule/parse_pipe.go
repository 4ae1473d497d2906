package rule

import (
	"math"
	"strings"
)

const pipeHint = "pipe N config bw 10Mbit/s [queue SIZE] [burst SIZE] [mask src-ip 0xffffffff]"

// pipeCommands are what can be done with a pipe.
var pipeCommands = map[string]bool{
	"config": true, "delete": true, "flush": true, "list": true, "show": true,
}

// pipe reads pipe N config ..., pipe delete N, pipe flush, pipe show [N].
func (p *parser) pipe(c *Command) error {
	number, command, err := p.numbered(c, "pipe number", pipeCommands)
	if err != nil {
		return err
	}
	switch {
	case command.text == "":
		return p.fail(p.peek(), pipeHint, "the command is missing after pipe")
	case command.text == "flush":
		c.Kind = CommandPipeFlush
		if c.Number != 0 {
			return p.fail(number, "pipe delete NUMBER", "flush removes all pipes")
		}
	case command.text == "list" || command.text == "show":
		c.Number = 0
	case c.Number == 0:
		return p.fail(p.peek(), pipeHint, "the number of the pipe is missing")
	case command.text == "delete":
		c.Kind = CommandPipeDelete
	default:
		c.Kind = CommandPipe
		return p.pipeConfig(c)
	}
	return p.end("pipe " + command.text)
}

// refusedPipe is why a part of a pipe's configuration is not taken.
var refusedPipe = refused{
	"delay": "packets are not delayed, only dropped; tc qdisc add dev IF root netem delay " +
		"50ms does it",
	"plr":      "\"prob 0.01 deny\" in front of the pipe's rule drops at random",
	"profile":  "packets are not delayed; tc qdisc ... netem does it",
	"red":      "there is no queue to manage; tc qdisc ... red has one",
	"gred":     "there is no queue to manage; tc qdisc ... gred has one",
	"ecn":      "packets are not marked; tc qdisc ... red ecn does it",
	"codel":    "there is no queue to manage; tc qdisc ... codel has one",
	"pie":      "there is no queue to manage; tc qdisc ... pie has one",
	"fq_codel": "there is no queue to schedule; tc qdisc ... fq_codel has one",
	"fq_pie":   "there is no queue to schedule; tc qdisc ... fq_pie has one",
	"type":     "there is no queue to schedule; tc qdisc ... does it",
	"sched":    "there is no queue to schedule; tc qdisc ... does it",
	"weight":   "flows share a pipe as they come; tc qdisc ... hfsc or htb has weights",
	"pri":      "flows share a pipe as they come; tc qdisc ... prio has priorities",
	"pipe":     "a pipe is not a part of another one",
}

// pipeConfig reads what follows "pipe N config". A new configuration replaces the one before.
func (p *parser) pipeConfig(c *Command) error {
	x := &Pipe{Queue: defaultSlots}
	at := p.peek()
	for !p.done() {
		t := p.next()
		var err error
		switch t.text {
		case "bw", "bandwidth":
			x.Bandwidth, err = p.bandwidth()
		case "queue":
			err = p.pipeQueue(x)
		case "burst":
			x.Burst, err = p.pipeBytes("burst")
		case "mask", "flow_mask":
			err = p.pipeMask(x)
		case "buckets": // the size of ipfw's table of flows
			_, err = p.needNum("number of buckets", 1, math.MaxUint16)
		case "noerror", "droptail": // what ipfw does with what it drops
		case "delay", "plr": // none is what Weir does
			if zero := p.peek().text; zero == "0" || zero == "0ms" {
				p.next()
				continue
			}
			err = p.refusePipe(t)
		default:
			err = p.refusePipe(t)
		}
		if err != nil {
			return err
		}
	}
	if x.Bandwidth != 0 && x.refill() > maxRefill {
		return p.fail(at, "a smaller queue or burst, or a larger bandwidth",
			"queue and burst are more than what the bandwidth carries in 24 hours")
	}
	c.Pipe = x
	return nil
}

func (p *parser) refusePipe(t token) error {
	if why, known := refusedPipe[t.text]; known {
		return p.fail(t, why, "%s of a pipe is a part of ipfw that Weir does not have",
			quote(t.text))
	}
	return p.fail(t, pipeHint, "unknown word %s of a pipe", quote(t.text))
}

const bandwidthHint = "bw 512Kbit/s, bw 10Mbit/s, bw 64KByte/s"

// bandwidth reads a number with a unit, as ipfw does: K, M or G, then bits or bytes.
func (p *parser) bandwidth() (uint64, error) {
	t, err := p.need("bandwidth", bandwidthHint)
	if err != nil {
		return 0, err
	}
	if t.text[0] >= 'a' && t.text[0] <= 'z' {
		return 0, p.fail(t, bandwidthHint, "a pipe at the speed of an interface is a part of ipfw "+
			"that Weir does not have")
	}
	n, times, unit, ok := scaled(t.text, 1000)
	switch unit { // letters other than the first do not matter to ipfw
	case "", "b", "bit", "bits", "bps", "bit/s", "bits/s", "b/s", "Bit", "Bits", "Bit/s", "Bits/s":
	case "B", "B/s", "Byte", "Bytes", "Byte/s", "Bytes/s", "byte", "bytes", "byte/s", "bytes/s":
		times *= 8
	default:
		ok = false
	}
	if !ok {
		return 0, p.fail(t, bandwidthHint, "bandwidth must be a whole number with a unit, not %s",
			quote(t.text))
	}
	if n > MaxBandwidth/times { // before it overflows
		n, times = MaxBandwidth+1, 1
	}
	if n *= times; n != 0 && (n < MinBandwidth || n > MaxBandwidth) {
		return 0, p.fail(t, bandwidthHint, "bandwidth must be from 1Kbit/s to 100Gbit/s, or 0 for "+
			"no bound")
	}
	return n, nil
}

// scaled reads digits, perhaps K, M or G of a base, and returns what follows. n is at most 2^32.
func scaled(s string, base uint64) (n, times uint64, rest string, ok bool) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	n, ok = decimal(s[:digits])
	times, rest = 1, s[digits:]
	if rest != "" {
		if at := strings.IndexByte("kmg", rest[0]|0x20); at >= 0 {
			for range at + 1 {
				times *= base
			}
			rest = rest[1:]
		}
	}
	return n, times, rest, ok
}

// pipeQueue reads a number of packets, or of bytes with a unit.
func (p *parser) pipeQueue(x *Pipe) error {
	t := p.peek()
	if _, slots := decimal(t.text); slots {
		n, err := p.needNum("queue", 2, maxSlots)
		x.Queue, x.InBytes = n, false
		return err
	}
	n, err := p.pipeBytes("queue")
	if x.Queue, x.InBytes = n, true; err == nil && n == 0 {
		err = p.fail(t, "", "the queue must be more than 0")
	}
	return err
}

// pipeBytes reads a number of bytes.
func (p *parser) pipeBytes(what string) (uint32, error) {
	hint := what + " 20KBytes"
	t, err := p.need("size of the "+what, hint)
	if err != nil {
		return 0, err
	}
	n, times, unit, ok := scaled(t.text, 1024)
	switch unit {
	case "", "B", "b", "Byte", "Bytes", "byte", "bytes":
	default:
		ok = false
	}
	if !ok {
		return 0, p.fail(t, hint, "%s must be a number of bytes, not %s", what, quote(t.text))
	}
	if n > maxPipeBytes || n*times > maxPipeBytes {
		return 0, p.fail(t, hint, "%s must be at most 1 GByte", what)
	}
	return uint32(n * times), nil
}

// pipeMask reads the parts of a mask. ipfw has no mask for what is not named.
func (p *parser) pipeMask(x *Pipe) error {
	m := &x.Mask
	*m = PipeMask{}
	if p.accept("all") {
		*m = PipeMask{Src: math.MaxUint32, Dst: math.MaxUint32, Src6: 128, Dst6: 128,
			SrcPort: math.MaxUint16, DstPort: math.MaxUint16, Proto: math.MaxUint8}
		return nil
	}
	for first := true; ; first = false {
		t := p.peek()
		var n uint32
		var err error
		switch t.text {
		case "src-ip":
			m.Src, err = p.maskBits(32)
		case "dst-ip":
			m.Dst, err = p.maskBits(32)
		case "src-ip6", "src-ipv6":
			n, err = p.maskLength()
			m.Src6 = uint8(n)
		case "dst-ip6", "dst-ipv6":
			n, err = p.maskLength()
			m.Dst6 = uint8(n)
		case "src-port":
			n, err = p.maskBits(16)
			m.SrcPort = uint16(n)
		case "dst-port":
			n, err = p.maskBits(16)
			m.DstPort = uint16(n)
		case "proto":
			n, err = p.maskBits(8)
			m.Proto = uint8(n)
		case "flow-id":
			return p.fail(t, refusedOptions["flow-id"],
				"%q is a word of ipfw that Weir does not have", t.text)
		default:
			if first {
				return p.fail(t, "mask src-ip 0xffffffff", "expected src-ip, dst-ip, src-ip6, "+
					"dst-ip6, src-port, dst-port, proto or all, found %s", p.found(t))
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maskBits reads a mask: a number, or /N for the N lowest bits, as in ipfw.
func (p *parser) maskBits(width uint) (uint32, error) {
	word := p.next()
	t, err := p.need("mask of "+word.text, word.text+" 0xff")
	if err != nil {
		return 0, err
	}
	all := uint32(1<<width - 1)
	if !strings.HasPrefix(t.text, "/") {
		return p.num(t, "mask of "+word.text, 0, all)
	}
	n, err := p.num(t.sub(1, len(t.text)), "number of lowest bits", 0, uint32(width))
	return uint32(1<<n - 1), err
}

// maskLength reads a prefix length, with or without a slash.
func (p *parser) maskLength() (uint32, error) {
	word := p.next()
	t, err := p.need("prefix length of "+word.text, word.text+" /64")
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(t.text, "/") {
		t = t.sub(1, len(t.text))
	}
	return p.num(t, "prefix length", 0, 128)
}
