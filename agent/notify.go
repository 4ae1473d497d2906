package agent

import (
	"net"
	"os"
)

// notify tells the service manager about the state of the process, as sd_notify(3) does. Without a service manager it does nothing;
// what goes wrong is nobody's concern but the manager's, which notices by its own timeout.
func notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if name[0] == '@' { // abstract socket
		name = "\x00" + name[1:]
	}
	c, err := net.Dial("unixgram", name)
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}
