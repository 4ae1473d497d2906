package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Top is the flows with the most traffic and the refused packets.
type Top struct {
	Version   int       `json:"version"`
	Time      time.Time `json:"time"`
	Since     time.Time `json:"since"` // refusals are counted from here on
	States    int       `json:"states"`
	StatesMax int       `json:"states_max"`
	HalfOpen  int       `json:"half_open"`
	// Events is how many of each kind came since the agent started, Lost how many of them no
	// subscriber saw.
	Events map[string]uint64 `json:"events"`
	Lost   uint64            `json:"lost"`
	// Refused is the sum of all refusals that were seen, Others of those that Refusals has no space
	// for.
	Refused  Count      `json:"refused"`
	Others   Count      `json:"others"`
	Refusals []Refusals `json:"refusals"`
	Talkers  []Talker   `json:"talkers"`
	Ages     []Age      `json:"ages"`
}

// Count is a number of packets and bytes.
type Count struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Refusals are the packets from one end to another that were refused.
type Refusals struct {
	Proto   string    `json:"proto"`
	Src     string    `json:"src"`
	SrcName string    `json:"src_name,omitempty"`
	Dst     string    `json:"dst"`
	DstName string    `json:"dst_name,omitempty"`
	SrcMine bool      `json:"src_mine,omitempty"` // an address of this host
	DstMine bool      `json:"dst_mine,omitempty"`
	Port    uint16    `json:"port,omitempty"`
	Rule    uint16    `json:"rule"`
	Reason  string    `json:"reason"`
	Packets uint64    `json:"packets"`
	Bytes   uint64    `json:"bytes"`
	Last    time.Time `json:"last"`
}

// Talker is the flows of one end with a port of another.
type Talker struct {
	Proto   string  `json:"proto"`
	Src     string  `json:"src"` // who began
	SrcName string  `json:"src_name,omitempty"`
	Dst     string  `json:"dst"`
	DstName string  `json:"dst_name,omitempty"`
	SrcMine bool    `json:"src_mine,omitempty"` // an address of this host
	DstMine bool    `json:"dst_mine,omitempty"`
	Port    uint16  `json:"port,omitempty"`
	States  int     `json:"states"`
	Packets uint64  `json:"packets"` // of live states
	Bytes   uint64  `json:"bytes"`
	Rate    float64 `json:"bytes_per_second"`
}

// Age counts the states of a protocol by phase that are younger than a bound and not younger than
// the bound before.
type Age struct {
	Proto  string `json:"proto"`
	Phase  string `json:"phase"`
	Counts []int  `json:"counts"` // by AgeBounds, and the rest
}

// AgeBounds are the bounds of Age.Counts in seconds.
var AgeBounds = [...]int{1, 10, 60, 600, 3600}

// Stream asks for JSON lines and calls f with each, without its newline, until the node or f ends
// it. The line is f's during the call.
func (c *Client) Stream(ctx context.Context, path string, f func(line []byte) error) error {
	begun, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(readTimeout, func() { cancel(ErrSilent) })
	r, err := http.NewRequestWithContext(begun, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return err
	}
	w, err := c.http.Do(r)
	if err != nil && context.Cause(begun) == ErrSilent {
		return silent{c.socket}
	}
	if late.Stop(); err != nil {
		return c.refine(err)
	}
	defer w.Body.Close()
	if w.StatusCode >= 400 {
		return readError(w)
	}
	s := bufio.NewScanner(w.Body)
	s.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for s.Scan() {
		if err := f(s.Bytes()); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("stream of the node: %w", err)
	}
	return ctx.Err()
}

// Raw returns the body of an answer as it came, at most 64 MiB.
func (c *Client) Raw(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	w, err := c.http.Do(r)
	if err != nil {
		return nil, c.refine(err)
	}
	defer w.Body.Close()
	if w.StatusCode >= 400 {
		return nil, readError(w)
	}
	return io.ReadAll(io.LimitReader(w.Body, 64<<20))
}
