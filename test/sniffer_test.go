package test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// sniffer is a tcpdump that writes what an Ethernet interface sees to a file.
type sniffer struct {
	t      *testing.T
	node   *nstest.Node
	iface  string
	file   string
	cmd    *exec.Cmd
	done   chan error
	stderr programOutput
}

// capture starts a sniffer.
func capture(t *testing.T, node *nstest.Node, iface string) *sniffer {
	t.Helper()
	s := &sniffer{t: t, node: node, iface: iface, done: make(chan error, 1),
		file: filepath.Join(t.TempDir(), "capture.pcap")}
	cmd := node.Command("tcpdump", "-i", iface, "-s", "0", "-B", "65536", "-U", "-w", s.file, "-Z",
		"root")
	cmd.Stderr = &s.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd = cmd.Cmd
	go func() { s.done <- cmd.Wait() }()
	s.stderr.await(t, "listening on") // printed when the socket is bound and the file open
	return s
}

// mark sends a frame out of the interface and waits until the file has it, and so all that came
// before. It returns how long the file was without the frame. tcpdump's buffer may keep a packet
// for a second, and tcpdump leaves there what it has not read when it is asked to end.
func (s *sniffer) mark() int64 {
	s.t.Helper()
	const head, ethernet = 16, 14 // of a packet in the file, and of the frame
	out, err := nstest.OpenFrames(s.node, s.iface)
	if err != nil {
		s.t.Fatal(err)
	}
	mark := []byte("mark " + rand.Text() + rand.Text())
	// a local experimental EtherType (IEEE 802)
	frame := append(bytes.Repeat([]byte{0xff}, 6), append(out.MAC, 0x88, 0xb5)...)
	err = out.Send(append(frame, mark...))
	if _, bad := out.Stop(); err != nil || bad != nil {
		s.t.Fatal(errors.Join(err, bad))
	}
	f, err := os.Open(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	var text []byte
	at := int64(0) // of text in the file
	eventually(s.t, "tcpdump sees the mark", func() error {
		if keep := len(text) - len(mark); keep > 0 {
			text, at = text[keep:], at+int64(keep)
		}
		more, err := io.ReadAll(f)
		if err != nil {
			s.t.Fatal(err)
		}
		text = append(text, more...)
		found := bytes.Index(text, mark)
		if found < 0 {
			return errors.New("it does not")
		}
		at += int64(found - head - ethernet)
		return nil
	})
	return at
}

// stop ends the capture and returns the file, which has every packet until now.
func (s *sniffer) stop() string {
	s.t.Helper()
	return s.stopAt(s.mark())
}

// stopAt ends the capture and cuts the file off where a mark is.
func (s *sniffer) stopAt(mark int64) string {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGINT)
	if err := <-s.done; err != nil {
		s.t.Fatalf("tcpdump: %v\n%s", err, s.stderr.String())
	}
	if output := s.stderr.String(); !strings.Contains(output, "\n0 packets dropped by kernel") {
		s.t.Fatalf("tcpdump lost packets: %s", output)
	}
	if err := os.Truncate(s.file, mark); err != nil {
		s.t.Fatal(err)
	}
	return s.file
}
