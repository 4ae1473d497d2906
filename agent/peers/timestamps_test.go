package peers

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/overlay"
)

// newTimestamped is a Service with a file of timestamps that has a text, "" for none.
func newTimestamped(t *testing.T, text string) *Service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "handshakes")
	if text != "" {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{Settings: DefaultSettings(), Files: Files{Timestamps: file},
		Log: slog.New(slog.DiscardHandler)})
}

// TestTimestampsContinue: handshakes continue from what the disk has, whatever the clock shows,
// also over several starts; a damaged file does not keep the tunnel away.
func TestTimestampsContinue(t *testing.T) {
	last := time.Now().Add(366 * 24 * time.Hour).Round(0)
	text := last.UTC().Format(time.RFC3339)
	for range 3 {
		p := newTimestamped(t, text)
		p.continueHandshakesLocked()
		if at := overlay.HandshakeTime(); !at.After(last) {
			t.Fatalf("a handshake of %v, after one of %v", at, last)
		}
		p.tunnel.Store(&tunnel{user: new(overlay.Device)})
		p.saveTimestamps()
		saved, err := readTimestamps(p.config.Files.Timestamps)
		if err != nil || saved.Before(last) {
			t.Fatalf("the disk has %v, %v", saved, err)
		}
		if all := p.clockProblemsLocked(); len(all) > 0 {
			t.Error(all)
		}
		last, text = saved, saved.Format(time.RFC3339)
	}
	p := newTimestamped(t, "yesterday")
	p.continueHandshakesLocked()
	p.tunnel.Store(&tunnel{user: new(overlay.Device)})
	p.saveTimestamps()
	if at, err := readTimestamps(p.config.Files.Timestamps); err != nil || at.Before(last) {
		t.Errorf("in place of a damaged file: %v, %v", at, err)
	}
}

// TestKernelTunnelWithAnEarlierClock: the kernel's WireGuard takes the time of day, so the status
// says that peers refuse it, and what to do, until the clock is right.
func TestKernelTunnelWithAnEarlierClock(t *testing.T) {
	later := time.Now().Add(366 * 24 * time.Hour).UTC().Format(time.RFC3339)
	p := newTimestamped(t, later)
	p.config.Settings.Backend = BackendKernel
	before := overlay.HandshakeTime()
	p.continueHandshakesLocked()
	if at := overlay.HandshakeTime(); at.Sub(before) > time.Minute {
		t.Errorf("handshakes of the agent's own continue from %v", at)
	}
	p.tunnel.Store(&tunnel{kernel: new(overlay.KernelDevice)})
	p.saveTimestamps()
	all := p.clockProblemsLocked()
	if len(all) != 1 || !strings.Contains(all[0].What, "the clock shows") ||
		!strings.Contains(all[0].Advice, "set the clock") {
		t.Errorf("problems: %+v", all)
	}
	if at, err := readTimestamps(p.config.Files.Timestamps); err != nil ||
		at.Format(time.RFC3339) != later {
		t.Errorf("an earlier clock was saved: %v, %v", at, err)
	}
	p.timestamps.saved = time.Now().Add(-time.Hour)
	p.saveTimestamps()
	if all := p.clockProblemsLocked(); len(all) > 0 {
		t.Errorf("with a clock that is right: %+v", all)
	}
}

// TestTimestampsOnAFullDisk: the status says that they are not written, until they are.
func TestTimestampsOnAFullDisk(t *testing.T) {
	p := newTimestamped(t, "")
	file := p.config.Files.Timestamps
	p.config.Files.Timestamps = filepath.Join(file, "no-directory")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.tunnel.Store(&tunnel{user: new(overlay.Device)})
	p.saveTimestamps()
	if all := p.clockProblemsLocked(); len(all) != 1 ||
		!strings.Contains(all[0].What, "cannot be written") {
		t.Errorf("problems: %+v", all)
	}
	p.config.Files.Timestamps = file
	p.saveTimestamps()
	if all := p.clockProblemsLocked(); len(all) > 0 {
		t.Errorf("problems: %+v", all)
	}
}
