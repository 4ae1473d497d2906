package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/examples"
)

// Cluster is what the fourth part saw.
type Cluster struct {
	Files []ScopeFile `json:"files"`
	Join  []Command   `json:"join"` // three hosts become a cluster
	Load  []Command   `json:"load"` // of the rules
	// Requests with these rules, on trial, and after the trial.
	Visits []Visit `json:"visits"`
	// A version on trial, and what became of it on the host that was cut off meanwhile.
	Trial  []Command `json:"trial"`
	CutOff []Command `json:"cut_off"`
}

// ScopeFile is a rule file and the hosts that have it.
type ScopeFile struct {
	Name  string `json:"name"`
	Scope string `json:"scope"`
	Text  string `json:"text"`
}

// trialTime is how long the version with a mistake is on trial.
const trialTime = 4 * time.Second

// mistake is the rule that no one confirms.
const mistake = "add 20 deny ip from any to table(app=db)\n"

// run is the fourth part: three hosts with one rule set, of which one is cut off while a version
// with a mistake is on trial.
func (s *clusterTestbed) run(ctx context.Context) (c *Cluster, wrong []string, err error) {
	c = &Cluster{Files: []ScopeFile{{"all.rules", "all", examples.ClusterAll},
		{"web.rules", "role:web", examples.ClusterWeb},
		{"db.rules", "role:db", examples.ClusterDB}}}
	if c.Join, err = s.found(ctx); err != nil {
		return nil, nil, err
	}
	for _, f := range c.Files {
		if err := s.write(f.Name, f.Text); err != nil {
			return nil, nil, err
		}
		done, err := s.do(ctx, s.hub, "", "fw", "load", "--on", f.Scope, f.Name)
		if err != nil {
			return nil, nil, done.wrong(err)
		}
		c.Load = append(c.Load, done)
	}
	address, err := s.containers(ctx)
	if err != nil {
		return nil, nil, err
	}
	request := plan{from: s.web, host: address.String(), port: 5432, pass: true}
	refused := plan{from: s.job, host: address.String(), port: 5432}
	visit := func(p plan) error {
		v, err := visitBy(ctx, s.web1.node, s.web1.name, p, clusterRules)
		c.Visits = append(c.Visits, v)
		if err == nil && v.Passed != p.pass {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s", v.Who, v.What, v.Answer))
		}
		return err
	}
	if err := errors.Join(visit(request), visit(refused)); err != nil {
		return nil, nil, err
	}
	request.as, request.pass = "web, during the trial", false
	err = s.trial(ctx, c, func() error { return visit(request) })
	if err != nil {
		return nil, nil, err
	}
	request.as, request.pass = "web, after the trial", true
	if err := visit(request); err != nil {
		return nil, nil, err
	}
	shown, _ := s.do(ctx, s.db, "weir status", "status") // it reports a problem
	c.CutOff = []Command{shown.lines("problem: ", "rules: ", "cluster: ")}
	return c, append(wrong, c.unexpected()...), nil
}

// found makes the cluster and has the three hosts join.
func (s *clusterTestbed) found(ctx context.Context) (all []Command, err error) {
	made, err := s.do(ctx, s.hub, "", "cluster", "init", "--name", "hub", "--address", storeAt,
		"--pool", "10.64.0.0/16:24")
	if err != nil {
		return nil, made.wrong(err)
	}
	if err := s.startStore(); err != nil {
		return nil, err
	}
	if err := until(ctx, "weir-store answers", s.answers(ctx)); err != nil {
		return nil, err
	}
	all = append(all, made)
	for _, m := range []*member{s.hub, s.web1, s.db} {
		args := []string{"cluster", "invite"}
		if role, ok := strings.CutSuffix(m.name, "1"); ok {
			args = append(args, "--role", role, "--label", "app")
		}
		token, err := s.do(ctx, s.hub, "", args...)
		if err != nil {
			return nil, token.wrong(err)
		}
		joined, err := s.do(ctx, m, "weir join TOKEN@"+storeAt, "join", "--name", m.name,
			token.Printed)
		if err != nil {
			return nil, joined.wrong(err)
		}
		token.Printed = "TOKEN@" + storeAt
		all = append(all, token, joined)
		if err := m.follows(ctx); err != nil {
			return nil, err
		}
	}
	list, err := s.do(ctx, s.hub, "", "node", "list")
	if err != nil {
		return nil, list.wrong(err)
	}
	return append(all, list), nil
}

// answers reports whether weir-store accepts connections.
func (s *clusterTestbed) answers(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		select {
		case err := <-s.ended:
			s.ended <- err
			return false, fmt.Errorf("weir-store ended: %w", err)
		default:
		}
		conn, err := s.hub.where.DialContext(ctx, "tcp", net.JoinHostPort(storeAt, "7477"))
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	}
}

// containers attaches the containers, and waits until each host knows those of the other.
func (s *clusterTestbed) containers(ctx context.Context) (db netip.Addr, err error) {
	if db, err = s.attach(ctx, s.db, s.sql, map[string]string{"app": "db"}, 5432); err != nil {
		return db, err
	}
	web, err := s.attach(ctx, s.web1, s.web, map[string]string{"app": "web"}, 0)
	if err != nil {
		return db, err
	}
	if _, err := s.attach(ctx, s.web1, s.job, nil, 0); err != nil {
		return db, err
	}
	for _, w := range []struct {
		at    *member
		table string
		addr  netip.Addr
	}{{s.web1, "app=db", db}, {s.db, "app=web", web}} {
		err := until(ctx, fmt.Sprintf("%v is in the table of %s", w.addr, w.at.name),
			func() (bool, error) {
				var t api.Tables
				err := w.at.node.client.Get(ctx, "/v1/tables", &t)
				return err == nil && slices.ContainsFunc(t.Tables, func(t api.Table) bool {
					return t.Name == w.table && slices.ContainsFunc(t.Entries,
						func(e api.TableEntry) bool {
							return strings.HasPrefix(e.Prefix, w.addr.String()+"/")
						})
				}), err
			})
		if err != nil {
			return db, err
		}
	}
	return db, nil
}

// trial loads a version with a mistake, and cuts a host off. Nothing confirms it. meanwhile
// is called while it is in force.
func (s *clusterTestbed) trial(ctx context.Context, c *Cluster, meanwhile func() error) error {
	if err := s.write("wrong.rules", mistake+examples.ClusterAll); err != nil {
		return err
	}
	loaded, err := s.do(ctx, s.hub, "", "fw", "load", "wrong.rules", "--confirm",
		trialTime.String())
	if err != nil {
		return loaded.wrong(err)
	}
	over := time.Now().Add(trialTime)
	link, err := s.db.where.Netlink().LinkByName("eth0")
	if err == nil {
		err = s.db.where.Netlink().SetLinkDown(link.Index)
	}
	if err != nil {
		return err
	}
	if err := meanwhile(); err != nil {
		return err
	}
	sleep(ctx, time.Until(over.Add(-trialTime/4)))        // the others have reported again
	confirmed, _ := s.do(ctx, s.hub, "", "fw", "confirm") // it is to fail: unexpected
	c.Trial = []Command{loaded, confirmed}
	for _, m := range []*member{s.web1, s.db} {
		err := until(ctx, m.name+" is back at the previous version", func() (bool, error) {
			all, err := m.node.rules(ctx)
			return err == nil && !slices.ContainsFunc(all, func(r api.Rule) bool {
				return r.Number == 20
			}), err
		})
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// unexpected returns what the commands printed that they should not.
func (c *Cluster) unexpected() (wrong []string) {
	for _, l := range append(slices.Clone(c.Load), c.Trial[0]) {
		if !strings.Contains(l.Printed, "enforced on 3 of 3 hosts") {
			wrong = append(wrong, l.Command+": "+l.Printed)
		}
	}
	if l := c.Trial[1]; !l.failed || !strings.Contains(l.Printed, "db1") {
		wrong = append(wrong, l.Command+": "+l.Printed)
	}
	if l := c.CutOff[0]; !strings.Contains(l.Printed, "not confirmed in time") ||
		!strings.Contains(l.Printed, "rules version 1.3") {
		wrong = append(wrong, l.Command+": "+l.Printed)
	}
	return wrong
}

// wrong is an error with what the command printed.
func (c Command) wrong(err error) error {
	return fmt.Errorf("on %s: %s: %w\n%s", c.Host, c.Command, err, c.Printed)
}

// lines is the command with the lines that begin so.
func (c Command) lines(begin ...string) Command {
	var kept []string
	for line := range strings.Lines(c.Printed) {
		if slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(line, b) }) {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	c.Printed = strings.Join(kept, "\n")
	return c
}
