package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/packet"
)

// passed is the capture that `fw replay -w` writes. It gets its name only when it is complete. It
// holds the contents of connections: only the owner may read it, as os.CreateTemp makes it.
type passed struct {
	path   string
	file   *os.File
	buffer *bufio.Writer
	link   packet.Link             // of a pcap file, which has one for all packets
	record func(pcap.Record) error // writes one packet
}

// newPassed creates the capture; for "" it writes none.
func newPassed(path string) (*passed, error) {
	p := &passed{path: path}
	if path == "" {
		return p, nil
	}
	var err error
	if p.file, err = os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-"); err != nil {
		return nil, err
	}
	p.buffer = bufio.NewWriterSize(p.file, 1<<16)
	return p, nil
}

// write adds a packet if it passed.
func (p *passed) write(j *offline.PacketVerdict) error {
	if p.file == nil || !j.Verdict.Pass {
		return nil
	}
	if p.record == nil {
		if err := p.begin(j.Record.Link); err != nil {
			return err
		}
	}
	ng := strings.HasSuffix(p.path, ".pcapng")
	if !ng && j.Record.Link != p.link {
		return fmt.Errorf("packets of this capture have different link types, which only pcapng "+
			"can hold: name it %s.pcapng", p.path)
	}
	return p.record(*j.Record)
}

// begin writes the head of the file.
func (p *passed) begin(link packet.Link) error {
	p.link = link
	if strings.HasSuffix(p.path, ".pcapng") {
		w, err := pcap.NewNGWriter(p.buffer)
		if err != nil {
			return err
		}
		p.record = w.Write
		return nil
	}
	w, err := pcap.NewWriter(p.buffer, link)
	if err != nil {
		return err
	}
	p.record = w.Write
	return nil
}

// finish gives the file its name.
func (p *passed) finish() error {
	if p.file == nil {
		return nil
	}
	if p.record == nil { // nothing passed: an empty capture
		if err := p.begin(packet.LinkEthernet); err != nil {
			return err
		}
	}
	if err := p.buffer.Flush(); err != nil {
		return err
	}
	if err := errors.Join(p.file.Sync(), p.file.Close()); err != nil {
		return err
	}
	if err := os.Rename(p.file.Name(), p.path); err != nil {
		return err
	}
	p.file = nil
	return nil
}

// abandon removes an unfinished file.
func (p *passed) abandon() {
	if p.file != nil {
		os.Remove(p.file.Name())
		p.file.Close()
	}
}
