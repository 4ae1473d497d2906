package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// work is a way to use a tunnel.
type work struct {
	args []string // of the iperf3 client
	ping bool     // measure round trips meanwhile
}

// outcome is what one run gave.
type outcome struct {
	rate float64 // bits/s, or packets/s
	cpu  float64 // ns of both nodes for a byte, or for a packet
	p99  float64 // ms
	lost float64 // TCP segments sent again, for each 1000 MB

	own     time.Duration // CPU time of iperf3
	foreign float64       // part of the machine that was not ours
}

// runs is how often a run is tried again when others disturbed it.
const runs = 4

// run uses the tunnel for some seconds, again when others used the machine meanwhile. The last try
// counts in any case.
func (t *tunnel) run(w work, seconds int) (o outcome, err error) {
	for range runs {
		if o, err = t.runOnce(w, seconds); err != nil || o.foreign <= foreignLimit {
			break
		}
	}
	return o, err
}

func (t *tunnel) runOnce(w work, seconds int) (outcome, error) {
	server := t.ends[1].Command("iperf3", "-s", "-1", "-B", addr("99", 1))
	if err := server.Start(); err != nil {
		return outcome{}, err
	}
	defer func() { // it ends by itself after one client
		server.Process.Kill()
		server.Wait()
	}()
	if err := t.listening(); err != nil {
		return outcome{}, err
	}
	var pings []float64
	pinged := make(chan error, 1)
	if w.ping {
		go func() {
			out, err := t.ends[0].Command("ping", "-n", "-i", "0.01", "-w", strconv.Itoa(seconds),
				addr("99", 1)).Output()
			pings = roundTrips(string(out))
			pinged <- err
		}()
	}
	before, err := t.cpu()
	if err != nil {
		return outcome{}, err
	}
	machine, err := readMachine()
	if err != nil {
		return outcome{}, err
	}
	begin := time.Now()
	args := append([]string{"-c", addr("99", 1), "-J", "-t", strconv.Itoa(seconds)}, w.args...)
	out, err := t.ends[0].Command("iperf3", args...).Output()
	if err != nil {
		return outcome{}, fmt.Errorf("%s: iperf3: %w: %.300s", t.kind, err, out)
	}
	after, err := t.cpu()
	if err != nil {
		return outcome{}, err
	}
	o, err := parse(out, float64(after-before))
	if err != nil {
		return outcome{}, err
	}
	if o.foreign, err = machine.foreign(time.Since(begin), after-before+o.own); err != nil {
		return outcome{}, err
	}
	if w.ping {
		<-pinged
		if len(pings) == 0 {
			return outcome{}, fmt.Errorf("%s: no ping came back", t.kind)
		}
		slices.Sort(pings)
		o.p99 = pings[len(pings)*99/100]
	}
	return o, nil
}

// listening waits until the server is there: on a busy machine it takes its time.
func (t *tunnel) listening() error {
	for range 200 {
		out, err := t.ends[1].Command("ss", "-Hltn", "sport", "=", ":5201").Output()
		if err == nil && len(out) > 0 {
			return nil
		}
		time.Sleep(25 * time.Millisecond)
	}
	return fmt.Errorf("%s: iperf3 does not listen", t.kind)
}

// parse reads iperf3's report: TCP by bits, UDP by packets that arrived.
func parse(out []byte, cpu float64) (outcome, error) {
	type sum struct {
		Bytes   float64 `json:"bytes"`
		BPS     float64 `json:"bits_per_second"`
		Packets float64 `json:"packets"`
		Lost    float64 `json:"lost_packets"`
		Seconds float64 `json:"seconds"`
		Again   float64 `json:"retransmits"`
	}
	var r struct {
		Error string `json:"error"`
		Start struct {
			Test struct {
				Duration float64 `json:"duration"`
			} `json:"test_start"`
		} `json:"start"`
		End struct {
			Sum      *sum `json:"sum"`
			Sent     sum  `json:"sum_sent"`
			Received sum  `json:"sum_received"`
			Back     sum  `json:"sum_sent_bidir_reverse"`
			Reverse  sum  `json:"sum_received_bidir_reverse"`
			CPU      struct {
				Host   float64 `json:"host_total"` // percent of one CPU
				Remote float64 `json:"remote_total"`
			} `json:"cpu_utilization_percent"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return outcome{}, err
	}
	if r.Error != "" {
		return outcome{}, fmt.Errorf("iperf3: %s", r.Error)
	}
	own := time.Duration((r.End.CPU.Host +
		r.End.CPU.Remote) / 100 * r.Start.Test.Duration * float64(time.Second))
	if s := r.End.Sum; s != nil && s.Packets > 0 {
		got := s.Packets - s.Lost
		return outcome{rate: got / s.Seconds, cpu: cpu / got, own: own}, nil
	}
	bytes := r.End.Received.Bytes + r.End.Reverse.Bytes
	return outcome{rate: r.End.Received.BPS + r.End.Reverse.BPS, cpu: cpu / bytes,
		lost: (r.End.Sent.Again + r.End.Back.Again) / bytes * 1e9, own: own}, nil
}

// roundTrips finds the times in ping's output, in ms.
func roundTrips(out string) (list []float64) {
	for line := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(line, "time="); ok {
			if ms, err := strconv.ParseFloat(strings.Fields(rest)[0], 64); err == nil {
				list = append(list, ms)
			}
		}
	}
	return list
}
