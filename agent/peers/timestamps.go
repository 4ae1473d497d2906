package peers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/overlay"
)

// A peer refuses a handshake that is not later than the last one that this host has begun. So a
// host that boots with an earlier clock, for want of a battery, would begin no session until its
// clock is right. The disk has how far the handshakes have come, and they continue from there.

const (
	// timestampsEvery is how often the disk gets that.
	timestampsEvery = time.Minute
	// timestampsAhead is how much further they may have come than the disk knows.
	timestampsAhead = time.Hour
	// clockSlack is by how much a clock may be set back before the status says so.
	clockSlack = time.Minute
)

// timestamps are how far the handshakes of this host have come.
type timestamps struct {
	saved  time.Time     // what the disk has; zero for nothing
	failed error         // why it does not have more
	opened chan struct{} // has an element when a tunnel was made
}

// continueHandshakesLocked reads how far handshakes have come, before the tunnel is made. The
// kernel's WireGuard has no other time than the clock's.
func (p *Service) continueHandshakesLocked() {
	s := &p.timestamps
	at, err := readTimestamps(p.config.Files.Timestamps)
	if err != nil {
		p.config.Log.Warn("cannot read the time of the last handshake", "err", err)
	}
	if at.After(s.saved) {
		s.saved = at
	}
	if now := overlay.HandshakeTime().Round(0); p.config.Settings.Backend != BackendKernel &&
		now.Before(s.saved) {
		overlay.ContinueHandshakes(s.saved.Add(timestampsAhead))
		p.config.Log.Warn("the clock is earlier than in the last run; the times of handshakes "+
			"continue from that", "clock", now, "before", s.saved)
	}
}

func readTimestamps(file string) (at time.Time, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err == nil {
		at, err = time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", file, err)
	}
	return at, nil
}

// keepTimestamps has the disk know how far handshakes have come, until the Service is closed.
func (p *Service) keepTimestamps() {
	every := time.NewTicker(timestampsEvery)
	defer every.Stop()
	for {
		select {
		case <-p.stop:
			p.saveTimestamps()
			return
		case <-p.timestamps.opened:
		case <-every.C:
		}
		p.saveTimestamps()
	}
}

func (p *Service) saveTimestamps() {
	t := p.tunnel.Load()
	if t == nil {
		return
	}
	at := overlay.HandshakeTime().Round(0)
	if t.kernel != nil {
		at = timeOfDay()
	}
	p.mu.Lock()
	later := at.After(p.timestamps.saved)
	p.mu.Unlock()
	if !later {
		return
	}
	err := atomicfile.Write(p.config.Files.Timestamps, []byte(at.UTC().Format(time.RFC3339)+"\n"))
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.timestamps.saved = at
	} else if p.timestamps.failed == nil {
		p.config.Log.Error("cannot write the time of the last handshake", "err", err)
	}
	p.timestamps.failed = err
}

// timeOfDay is what the clock shows, also if it was set back since.
func timeOfDay() time.Time { return time.Now().Round(0) }

// clockProblemsLocked shows what an earlier clock does, or would do.
func (p *Service) clockProblemsLocked() (all []api.Problem) {
	s, t := &p.timestamps, p.tunnel.Load()
	if s.failed != nil {
		all = append(all, api.Problem{What: "the time of the last handshake cannot be " +
			"written, so that after a boot with an earlier clock peers would refuse handshakes: " +
			s.failed.Error(),
			Advice: "free space on the disk; Weir tries again"})
	}
	now := timeOfDay()
	if t == nil || t.kernel == nil || now.After(s.saved.Add(-clockSlack)) {
		return all
	}
	return append(all, api.Problem{What: fmt.Sprintf("the clock shows %s, which is earlier than "+
		"%s, when the tunnel was used last: until that time, peers refuse handshakes of this host",
		now.UTC().Format(time.DateTime), s.saved.UTC().Format(time.DateTime)),
		Advice: "set the clock (timedatectl), or set backend = \"user\" in [overlay]"})
}
