package agent

import (
	"os"
	"strconv"
	"time"

	"github.com/weirnet/weir/eyeballs"
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
	c, err := new(eyeballs.Dialer).Dial("unixgram", name)
	if err != nil {
		return
	}
	defer c.Close()
	c.Write([]byte(state))
}

// watchdog returns how often the service manager wants to hear that the process is well, 0 if it does not (sd_watchdog_enabled(3)).
func watchdog() time.Duration {
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err != nil || usec <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(usec) * time.Microsecond / 3
}
