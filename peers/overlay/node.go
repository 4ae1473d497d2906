package main

import (
	"encoding/hex"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	forkconn "github.com/tailscale/wireguard-go/conn"
	forkdevice "github.com/tailscale/wireguard-go/device"
	forktun "github.com/tailscale/wireguard-go/tun"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/weirnet/weir/overlay"
)

// The kinds of nodes.
const (
	weir     = "weir"
	filtered = "weir+filter"
	upstream = "wireguard-go"
	fork     = "tailscale"

	boringtun = "boringtun-cli" // a program of its own, set up by wg(8)
)

const (
	mtu  = 1420
	port = 51820
)

// node runs one end of a tunnel until a signal ends it: `overlay node KIND PRIVATE PUBLIC
// ENDPOINT[,ENDPOINT] PODS`. It prints "ready" to stdout.
func node(args []string) error {
	fs := flag.NewFlagSet("node", flag.ContinueOnError)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 5 {
		return fmt.Errorf("node: %d arguments, want 5", fs.NArg())
	}
	kind := fs.Arg(0)
	private, err := overlay.ParseKey(fs.Arg(1))
	if err != nil {
		return err
	}
	public, err := overlay.ParseKey(fs.Arg(2))
	if err != nil {
		return err
	}
	endpoints, pods := strings.Split(fs.Arg(3), ","), fs.Arg(4)
	text := fmt.Sprintf("private_key=%s\nlisten_port=%d\npublic_key=%s\nendpoint=%s\n"+
		"allowed_ip=%s\n",
		hex.EncodeToString(private[:]), port, hex.EncodeToString(public[:]), endpoints[0], pods)
	switch kind {
	case weir, filtered:
		c := overlay.Config{Name: "tunnel", Key: private, Port: port, MTU: mtu}
		if kind == filtered {
			if c.Filter, err = newFilter(); err != nil {
				return err
			}
		}
		dev, err := overlay.New(c)
		if err != nil {
			return err
		}
		defer dev.Close()
		p := overlay.Peer{Name: "peer", Key: public, Endpoints: endpoints,
			Pods: []netip.Prefix{netip.MustParsePrefix(pods)}}
		if err := dev.SetPeer(p); err != nil {
			return err
		}
	case upstream:
		t, err := tun.CreateTUN("tunnel", mtu)
		if err != nil {
			return err
		}
		dev := device.NewDevice(t, conn.NewDefaultBind(),
			device.NewLogger(device.LogLevelError, ""))
		defer dev.Close()
		if err := dev.IpcSet(text); err != nil {
			return err
		}
		if err := dev.Up(); err != nil {
			return err
		}
	case fork:
		t, err := forktun.CreateTUN("tunnel", mtu)
		if err != nil {
			return err
		}
		dev := forkdevice.NewDevice(t, forkconn.NewDefaultBind(),
			forkdevice.NewLogger(forkdevice.LogLevelError, ""))
		defer dev.Close()
		if err := dev.IpcSet(text); err != nil {
			return err
		}
		if err := dev.Up(); err != nil {
			return err
		}
	case boringtun:
		stop, err := runBoringTun(private, public, endpoints[0], pods)
		if err != nil {
			return err
		}
		defer stop()
	default:
		return fmt.Errorf("node: kind %q", kind)
	}
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}
