package overlay

import (
	"time"

	"github.com/weirnet/weir/overlay/internal/tai64n"
)

// HandshakeTime returns the time that a handshake has which a Device of this program begins now. It
// is the time of day when the program began, and rises whatever happens to that. A peer refuses a
// handshake that is not later than the last one of the same key. What used the key before may have
// had a later time of day, see ContinueHandshakes.
func HandshakeTime() time.Time { return tai64n.Time() }

// ContinueHandshakes has handshakes of all Devices of this program be of a time or later.
func ContinueHandshakes(from time.Time) { tai64n.Continue(from) }
