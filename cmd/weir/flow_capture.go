package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/packet"
)

func flowCaptureCommand(c *call) action {
	name := c.StringP("write", "w", "", "write to `FILE`, pcapng; - is stdout")
	c.requires("write")
	snap := c.IntP("snaplen", "s", 256, "keep `BYTES` of each frame, at most 256")
	count := c.IntP("count", "c", 0, "end after `N` frames")
	rate := c.Int("rate", 1000, "keep at most `N` frames in a second")
	c.takes(0, -1)
	return func() error {
		switch {
		case *snap < 1 || *snap > 256:
			return c.wrong("-s %d is not between 1 and 256", *snap)
		case *count < 0 || *rate < 1:
			return c.wrong("-c and --rate must be more than 0")
		}
		file, remove := io.Writer(c.out), func() error { return nil }
		if *name != "-" {
			// It holds the contents of connections: only the owner may read it.
			f, err := openPrivate(*name)
			if err != nil {
				return c.failed(err)
			}
			defer f.Close()
			file, remove = f, func() error { return removeRegular(f) }
		}
		out := bufio.NewWriter(file)
		w, err := pcap.NewNGWriter(out)
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			return c.failed(errors.Join(err, remove()))
		}
		kept, missed, began := 0, uint64(0), false
		q := url.Values{"filter": {strings.Join(c.Args(), " ")}, "rate": {strconv.Itoa(*rate)}}
		err = c.client().Stream(c.ctx, "/v1/packets?"+q.Encode(), func(line []byte) error {
			var f api.Captured
			if err := json.Unmarshal(line, &f); err != nil {
				return err
			}
			if !began {
				began = true
				fmt.Fprintln(c.stderr, "capturing")
			}
			if missed += f.Missed; f.Verdict == "" { // only a gap
				return nil
			}
			kept++
			if err := w.Write(record(&f, *snap)); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if kept == *count {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errEnough) {
			return c.failed(err)
		}
		fmt.Fprintf(c.stderr, "%s written, %d left out because of --rate\n", plural(kept, "frame"),
			missed)
		return nil
	}
}

var errEnough = errors.New("enough")

// record is a frame with its verdict as comment.
func record(f *api.Captured, snap int) pcap.Record {
	r := pcap.Record{Time: f.Time, Data: f.Data[:min(snap, len(f.Data))], Len: f.Length,
		Link: packet.LinkRaw, Interface: f.Recv, Direction: pcap.Inbound}
	if f.Link == "ethernet" {
		r.Link = packet.LinkEthernet
	}
	if f.Hook == "out" {
		r.Interface, r.Direction = f.Xmit, pcap.Outbound
	}
	r.Comment = fmt.Sprintf("weir: %s by rule %d, reason %s, hook %s", f.Verdict, f.Rule, f.Reason,
		f.Hook)
	if f.Recv != "" {
		r.Comment += " recv " + f.Recv
	}
	if f.Xmit != "" {
		r.Comment += " xmit " + f.Xmit
	}
	if f.State != "" {
		r.Comment += ", state " + f.State
	}
	if f.Text != "" {
		r.Comment += ": " + f.Text
	}
	return r
}
