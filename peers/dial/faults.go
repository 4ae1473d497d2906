package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

const (
	runs        = 5                // of each scenario, with each contender
	dialTimeout = 10 * time.Second // time limit of each dial
	tolerance   = 20 * time.Millisecond
)

// stage is the simulated network with its servers.
type stage struct {
	net           *eyeballstest.Net
	dns           *eyeballstest.DNS
	plain, secure uint16

	mu     sync.Mutex
	serial int // guarded by mu
}

// faults runs all scenarios of one kind of host.
func faults(host eyeballstest.Family) error {
	n, err := eyeballstest.NewNet(host != eyeballstest.OnlyV6, host != eyeballstest.OnlyV4)
	if err != nil {
		return err
	}
	defer n.Close()
	d, err := eyeballstest.NewDNS("127.0.0.1:53")
	if err != nil {
		return err
	}
	defer d.Close()
	if err := inNamespace(""); err != nil {
		return err
	}
	st := &stage{net: n, dns: d}
	if err := st.servers(); err != nil {
		return err
	}
	var rows []faultRow
	for _, s := range eyeballstest.Scenarios() {
		if s.Host != host {
			continue
		}
		rows = append(rows, faultRow{s, st.run(&s, dialStd), st.run(&s, dialCurl),
			st.run(&s, dialWeir)})
	}
	for _, r := range rows {
		std, curl, weir := r.std(), r.curl(), r.weir()
		fmt.Printf("| %s | %s | %s | %s | %d |\n", r.Name, std, curl, weir,
			r.Prescribed.Milliseconds())
		if weir.failed {
			report(0)
			continue
		}
		report(float64(r.Prescribed+tolerance) / float64(weir.median))
	}
	return nil
}

// faultRow is a row of the table. Its functions wait for the outcomes.
type faultRow struct {
	eyeballstest.Scenario
	std, curl, weir func() outcome
}

// servers starts the servers with and without TLS, at this machine's addresses.
func (st *stage) servers() error {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
	for _, a := range []netip.Addr{st.net.Local4, st.net.Local6} {
		if !a.IsValid() {
			continue
		}
		for _, port := range []*uint16{&st.plain, &st.secure} {
			l, err := net.Listen("tcp", netip.AddrPortFrom(a, *port).String())
			if err != nil {
				return err
			}
			*port = netip.MustParseAddrPort(l.Addr().String()).Port()
			s := httptest.NewUnstartedServer(h)
			s.Listener.Close()
			s.Listener = l
			// attempts that lose a race close in the middle of a handshake
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			if port == &st.secure {
				s.StartTLS()
			} else {
				s.Start()
			}
		}
	}
	return nil
}

// outcome is the median of the runs of one contender.
type outcome struct {
	median time.Duration
	family int
	failed bool
}

func (o outcome) String() string {
	if o.failed {
		return fmt.Sprintf("fails after %d", o.median.Milliseconds())
	}
	ms := float64(o.median.Microseconds()) / 1000
	if ms < 10 {
		return fmt.Sprintf("%.1f v%d", ms, o.family)
	}
	return fmt.Sprintf("%.0f v%d", ms, o.family)
}

// contender dials a name. It returns the time of the dial that counts, and the family that won, 0
// for none.
type contender func(s *eyeballstest.Scenario, name string) (took time.Duration, family int)

// run stages a scenario for each run again, so that nothing is left of the last one. It returns a
// function that waits for the outcome. Long runs mostly wait, so they run in parallel with each
// other and with what follows.
func (st *stage) run(s *eyeballstest.Scenario, c contender) func() outcome {
	type result struct {
		took   time.Duration
		family int
	}
	one := func() result {
		st.mu.Lock()
		st.serial++
		serial := st.serial
		st.mu.Unlock()
		name := s.SetUp(st.net, st.dns, serial, st.plain, st.secure)
		took, family := c(s, name)
		return result{took, family}
	}
	results := make(chan result, runs)
	first := one()
	results <- first
	for range runs - 1 {
		if first.took < time.Second {
			results <- one()
			continue
		}
		go func() { results <- one() }()
	}
	return func() outcome {
		all := make([]result, runs)
		for i := range all {
			all[i] = <-results
		}
		slices.SortFunc(all, func(a, b result) int { return int(a.took - b.took) })
		m := all[runs/2]
		return outcome{m.took, m.family, m.family == 0}
	}
}

// timed dials once, or twice if the second dial counts.
func timed(s *eyeballstest.Scenario, name string, dial dialFunc) (took time.Duration, family int) {
	rounds := 1
	if s.Again {
		rounds = 2
	}
	for range rounds {
		begin := time.Now()
		c, err := dial(context.Background(), "tcp", name+":443")
		took, family = time.Since(begin), 0
		if err != nil {
			continue
		}
		family = 6
		if netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Is4() {
			family = 4
		}
		c.Close()
	}
	return took, family
}

func dialStd(s *eyeballstest.Scenario, name string) (time.Duration, int) {
	d := &net.Dialer{Timeout: dialTimeout}
	if s.TLS {
		t := &tls.Dialer{NetDialer: d, Config: &tls.Config{InsecureSkipVerify: true}}
		return timed(s, name, t.DialContext)
	}
	return timed(s, name, d.DialContext)
}

func dialWeir(s *eyeballstest.Scenario, name string) (time.Duration, int) {
	d := &eyeballs.Dialer{Timeout: dialTimeout, DNS: &dns.Resolver{},
		History: &eyeballs.History{}}
	if s.TLS {
		d.TLS = &tls.Config{InsecureSkipVerify: true}
	}
	return timed(s, name, d.DialContext)
}

// dialCurl uses the times that curl reports, which do not include its start.
func dialCurl(s *eyeballstest.Scenario, name string) (took time.Duration, family int) {
	url, when := "http://"+name+":443/", "%{time_connect}"
	if s.TLS {
		url, when = "https://"+name+"/", "%{time_appconnect}"
	}
	rounds := 1
	if s.Again {
		rounds = 2
	}
	for range rounds {
		begin := time.Now()
		out, err := exec.Command("curl", "-sk", "-o", "/dev/null", "--connect-timeout",
			strconv.Itoa(int(dialTimeout.Seconds())),
			"-w", when+" %{remote_ip}", url).Output()
		f := strings.Fields(string(out))
		if err != nil || len(f) != 2 {
			took, family = time.Since(begin), 0
			continue
		}
		seconds, _ := strconv.ParseFloat(f[0], 64)
		took, family = time.Duration(seconds*float64(time.Second)), 6
		if !strings.Contains(f[1], ":") {
			family = 4
		}
	}
	return took, family
}
