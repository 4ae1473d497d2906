package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/examples"
	"github.com/weirnet/weir/internal/nstest"
)

// A request that the rules refuse gets no answer at all; this is how long the client waits for
// one.
const silence = 700 * time.Millisecond

// answerTime is how long an answer may take that has to come.
const answerTime = time.Minute

// site is an HTTP server in a namespace.
type site struct {
	server http.Server
	ended  chan error
}

// serve answers HTTP on a port of a node, for both families.
func serve(n *nstest.Node, port int) (*site, error) {
	l, err := n.Listen("tcp", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		return nil, err
	}
	s := &site{ended: make(chan error, 1)}
	s.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "hello from port %d of the %s\n", port, n)
	})
	go func() { s.ended <- s.server.Serve(l) }()
	return s, nil
}

func (s *site) close() error {
	err := s.server.Close()
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// plan is what the demo asks and what the rules say about it.
type plan struct {
	from *nstest.Node
	host string // address as it stands in a URL
	port int
	pass bool

	as    string // who it is, if not just the node
	right bool   // the right host decides, not the left one
}

func (s *testbed) plans() []plan {
	plans := []plan{}
	for _, p := range []struct {
		from *nstest.Node
		host string
		port int
		pass bool
	}{
		{s.client, "10.77.1.1", 80, true}, {s.client, "[fd77:1::1]", 80, true},
		{s.scanner, "10.77.2.1", 80, true}, {s.scanner, "[fd77:2::1]", 80, true},
		{s.client, "10.77.1.1", 8080, true}, {s.client, "[fd77:1::1]", 8080, true},
		{s.scanner, "10.77.2.1", 8080, false}, {s.scanner, "[fd77:2::1]", 8080, false},
		{s.client, "10.77.1.1", 81, false}, {s.client, "[fd77:1::1]", 81, false},
		{s.scanner, "10.77.2.1", 81, false}, {s.scanner, "[fd77:2::1]", 81, false},
		{s.server, "10.77.1.2", 80, true}, {s.server, "[fd77:1::2]", 80, true},
	} {
		plans = append(plans, plan{from: p.from, host: p.host, port: p.port, pass: p.pass})
	}
	return plans
}

// run makes every visit, one after the other, so that the counter that moved is that of the rule
// that decided.
func (s *testbed) run(ctx context.Context) (*Result, error) {
	r := &Result{Version: 1, File: examples.Web, Added: clientsRule}
	before, err := s.node.rules(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range s.plans() {
		v := visit(ctx, p)
		after, err := s.node.rules(ctx)
		if err != nil {
			return nil, err
		}
		v.Rule = moved(before, after, v.Passed, nil)
		before = after
		r.Visits = append(r.Visits, v)
		if v.Passed != p.pass {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: %s: %s", v.Who, v.What, v.Answer))
		}
	}
	r.Rules = before
	var states api.States
	if err := s.node.client.Get(ctx, "/v1/states", &states); err != nil {
		return nil, err
	}
	r.States = states.States
	return r, nil
}

// Rules that let the encrypted packets of hosts pass, and what a cluster's hosts and their store
// send each other. They decide no visit.
var (
	wireRules    = []uint16{50}
	clusterRules = []uint16{100, 110, 120}
)

// moved returns the number of the rule that counted the most packets in between, among those that
// let pass or those that do not. Those of beside are left out.
func moved(before, after []api.Rule, passed bool, beside []uint16) (number uint16) {
	most := uint64(0)
	for i := range after {
		if i >= len(before) || slices.Contains(beside, after[i].Number) ||
			strings.HasPrefix(after[i].Text, "deny ") == passed {
			continue
		}
		if after[i].Packets-before[i].Packets > most {
			most, number = after[i].Packets-before[i].Packets, after[i].Number
		}
	}
	return number
}

// visit makes one request on a connection of its own, which stays open until the server closes it.
func visit(ctx context.Context, p plan) Visit {
	url := fmt.Sprintf("http://%s:%d/", p.host, p.port)
	v := Visit{Who: p.from.String(), What: "GET " + url}
	if p.as != "" {
		v.Who = p.as
	}
	atMost := silence
	if p.pass {
		atMost = answerTime
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, atMost)
		defer cancel()
		return p.from.DialContext(ctx, network, address)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 2 * answerTime}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		v.Answer = err.Error()
		return v
	}
	answer, err := client.Do(request)
	if err != nil {
		v.Answer = why(err)
		return v
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		v.Answer = why(err)
		return v
	}
	v.Passed = answer.StatusCode == http.StatusOK
	v.Answer = fmt.Sprintf("%s: %s", answer.Status, strings.TrimSpace(string(body)))
	return v
}

// why says in few words why there was no answer.
func why(err error) string {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer"
	}
	return err.Error()
}
