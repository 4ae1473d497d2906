package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/weirnet/weir/overlay"
)

// runBoringTun starts BoringTun in the foreground and sets it up. Its interface has a name of its
// own, because its socket lies in a directory that all namespaces share; it is renamed to what the
// others have.
func runBoringTun(private, public overlay.Key, endpoint, pods string) (stop func(), err error) {
	name := fmt.Sprintf("bt%d", os.Getpid())
	cmd := exec.Command(boringtun, "--foreground", "--disable-drop-privileges", name)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	socket := overlay.DefaultUAPI + "/" + name + ".sock"
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.Remove(socket)
	}
	c, err := dialSoon(socket)
	if err != nil {
		stop()
		return nil, err
	}
	defer c.Close()
	request := fmt.Sprintf("set=1\nprivate_key=%x\nlisten_port=%d\npublic_key=%x\nendpoint=%s\n"+
		"allowed_ip=%s\n\n", private[:], port, public[:], endpoint, pods)
	answer := make([]byte, 100)
	if _, err = c.Write([]byte(request)); err == nil {
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		var n int
		if n, err = c.Read(answer); err == nil &&
			!strings.HasPrefix(string(answer[:n]), "errno=0") {
			err = fmt.Errorf("boringtun: %q", answer[:n])
		}
	}
	if err == nil {
		for _, args := range [][]string{{"link", "set", name, "down"},
			{"link", "set", name, "name", "tunnel", "mtu", fmt.Sprint(mtu)}} {
			if out, e := exec.Command("ip", args...).CombinedOutput(); e != nil {
				err = errors.Join(err, fmt.Errorf("ip %v: %w: %s", args, e, out))
			}
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func dialSoon(socket string) (c net.Conn, err error) {
	for range 100 {
		if c, err = net.Dial("unix", socket); err == nil {
			return c, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}
