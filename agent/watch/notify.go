package watch

import (
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notify reports the state of the process to the service manager, as sd_notify(3) does. Without a
// service manager it does nothing; an error is ignored, because the manager notices by its own
// timeout.
func Notify(state string) { _, _ = daemon.SdNotify(false, state) }

// interval returns how often the service manager expects a sign of life, 0 if it expects none
// (sd_watchdog_enabled(3)).
func interval() time.Duration {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return every / 3
}
