// Command tunfilter joins two TUN devices and filters the packets between them: tunfilter RULES
// INSIDE OUTSIDE.
package main

import (
	"log"
	"math/rand/v2"
	"net/netip"
	"os"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/rule"
	"golang.org/x/sys/unix"
)

func main() {
	text := must(os.ReadFile(os.Args[1]))
	rules := must(rule.ParseFile(os.Args[1], string(text), nil))
	program := must(rule.Compile(rules, rule.CompileOptions{Strict: true}))
	fw := must(soft.New(soft.Options{Options: firewall.DefaultOptions(), Workers: 2}))
	must(0, fw.SetInterfaces([]firewall.Interface{{Index: 1, Name: os.Args[3]}}))
	must(0, fw.Load(program))
	inside, outside, start := tun(os.Args[2]), tun(os.Args[3]), time.Now()
	go pump(fw.Worker(0), firewall.Hook{Dir: firewall.Out, Xmit: 1}, start, inside, outside)
	pump(fw.Worker(1), firewall.Hook{Dir: firewall.In, Recv: 1}, start, outside, inside)
}

// pump evaluates every packet from one device. It writes the packet to the other device if it
// passes, and answers if a rule asks for that.
func pump(w *soft.Worker, hook firewall.Hook, start time.Time, from, to int) {
	for buf := make([]byte, 65536); ; {
		n := must(unix.Read(from, buf))
		in := firewall.Input{Hook: hook, Now: time.Since(start), Random: rand.Uint32()}
		if v := w.Evaluate(&in, buf[:n]); v.Pass {
			_, _ = unix.Write(to, buf[:n]) // a device that is down drops the packet
		} else if answer, ok := soft.Answer(v, buf[:n], netip.Addr{}); ok {
			_, _ = unix.Write(from, answer)
		}
		w.Tick(in.Now, nil)
	}
}

// tun makes a TUN device without packet information headers.
func tun(name string) int {
	fd := must(unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0))
	ifr := must(unix.NewIfreq(name))
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	must(0, unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
	return fd
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal("tunfilter: ", err)
	}
	return v
}
