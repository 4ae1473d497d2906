package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/proxy"
)

// graceful is how long `weir proxy` lets connections finish after a signal to stop.
const graceful = 10 * time.Second

func proxyCommand(c *call) action {
	listen := c.String("listen", "127.0.0.1:1080", "accept clients at `ADDRESS`")
	users := c.String("users", "", "admit only the users in `FILE`, lines of NAME:HASH")
	hash := c.String("hash", "",
		"read a password from standard input, print the line of `NAME` for the file of --users, "+
			"and end")
	local := c.Bool("local-targets", false,
		"let clients of other hosts reach this host's loopback, link-local and own addresses")
	connect := c.Duration("connect-timeout", proxy.DefaultConnectTimeout,
		"give up connecting after `TIME`")
	idle := c.Duration("idle-timeout", proxy.DefaultIdleTimeout,
		"close connections that were idle for `TIME`")
	clients := c.Int("max-clients", proxy.DefaultMaxClients, "serve at most `N` clients at a time")
	metrics := c.String("metrics", "", "serve metrics for Prometheus at `ADDRESS`")
	verbose := c.BoolP("verbose", "v", false, "log which connections fail, and why")
	return func() error {
		if *hash != "" {
			return printHash(c, *hash)
		}
		switch {
		case *connect <= 0 || *idle <= 0:
			return c.wrong("--connect-timeout and --idle-timeout must be more than 0")
		case *clients <= 0:
			return c.wrong("--max-clients must be more than 0")
		}
		level := slog.LevelWarn
		if *verbose {
			level = slog.LevelInfo
		}
		limit, err := clientLimit(*clients)
		if err != nil {
			return err
		}
		var dials proxy.Dials
		d := &eyeballs.Dialer{ControlContext: proxy.ControlContext(routes.IsToHost)}
		if *metrics != "" {
			d.Trace = dials.Trace
		}
		s := &proxy.Server{Dial: d.DialContext, ConnectTimeout: *connect, IdleTimeout: *idle,
			MaxClients: limit, MaxSessions: sessionsFor(limit),
			LocalTargets: *local,
			Log: slog.New(slog.NewTextHandler(c.stderr,
				&slog.HandlerOptions{Level: level}))}
		if *users != "" {
			if s.Users, err = readUsers(*users); err != nil {
				return err
			}
		}
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return advice{fmt.Errorf("proxy: %w", err), "--listen takes an address of this host " +
				"and a port that is free, such as 127.0.0.1:1080"}
		}
		if err := s.Check(l.Addr()); err != nil {
			l.Close()
			return advice{err, "add --users FILE, or --listen 127.0.0.1:1080"}
		}
		served := make(chan error, 2)
		if *metrics != "" {
			scrapes, err := observe.ServeMetrics(*metrics, func() ([]observe.Metric, error) {
				own := append(s.Metrics(), build().Metric())
				return append(own, dials.Metrics()...), nil
			}, served)
			if err != nil {
				l.Close()
				return err
			}
			defer scrapes.Close()
		}
		fmt.Fprintf(c.stderr, "weir: proxy for SOCKS5 and HTTP at %s\n", l.Addr())
		if limit < *clients {
			fmt.Fprintf(c.stderr,
				"weir: proxy: the limit of open files allows %d clients, not %d; raise it "+
					"with ulimit -n\n", limit, *clients)
		}
		go func() { served <- s.Serve(l) }()
		select {
		case err = <-served:
		case <-c.ctx.Done():
			ctx, cancel := context.WithTimeout(context.Background(), graceful)
			defer cancel()
			if s.Shutdown(ctx) != nil {
				fmt.Fprintf(c.stderr, "weir: proxy: closed connections still open after %v\n",
					graceful)
			}
			err = <-served
		}
		st := s.Stats()
		fmt.Fprintf(c.stderr,
			"weir: proxy stopped: %s, %d connects, %d requests, %d associations, %d bytes; %d "+
				"failed, "+
				"%d denied, %d malformed, %d over the limit, %d idle\n",
			plural(int(st.Accepted), "client"), st.Connects, st.Requests, st.Associations,
			st.BytesRelayed,
			st.Failed, st.Denied, st.BadHandshakes, st.TurnedAway, st.IdleClosed)
		if errors.Is(err, proxy.ErrClosed) {
			return nil
		}
		return err
	}
}

// printHash prints a line for the file of --users.
func printHash(c *call, name string) error {
	if strings.ContainsAny(name, ":\n") || len(name) > 255 {
		return c.wrong("a name has at most 255 bytes and no colon")
	}
	pass, err := c.readLine(1024)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("proxy: password: %w", err)
	}
	if pass == "" {
		return advice{errors.New("proxy: no password on standard input"),
			"weir proxy --hash " + name + " < FILE"}
	}
	sum, err := bcrypt.GenerateFromPassword([]byte(pass), bcrypt.DefaultCost)
	if err != nil {
		return fmt.Errorf("proxy: password: %w", err)
	}
	fmt.Fprintf(c.out, "%s:%s\n", name, sum)
	return nil
}

// readUsers reads names and the bcrypt hashes of passwords. Even so the file is a secret: others
// must not be able to read it. A credential of systemd is in a directory that is ours alone, and
// has the mode of an ACL.
func readUsers(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("proxy: users: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("proxy: users: %w", err)
	}
	credentials := os.Getenv("CREDENTIALS_DIRECTORY")
	isCredential := credentials != "" && filepath.Dir(path) == filepath.Clean(credentials)
	if info.Mode().Perm()&0o077 != 0 && !isCredential {
		return nil, advice{fmt.Errorf("proxy: users: others can read %s", path), "chmod 600 " +
			path}
	}
	users := map[string]string{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, hash, ok := strings.Cut(line, ":")
		if !ok || name == "" || len(name) > 255 {
			return nil, fmt.Errorf("proxy: users: %s:%d: the line is not NAME:HASH with a "+
				"name of at most 255 bytes", path, n)
		}
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, advice{fmt.Errorf("proxy: users: %s:%d: the text behind %q is not a "+
				"bcrypt hash", path, n, name+":"),
				"create the line with: weir proxy --hash " + name}
		}
		users[name] = hash
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("proxy: users: %w", err)
	}
	if len(users) == 0 {
		return nil, advice{fmt.Errorf("proxy: users: %s has no users", path),
			"add one: weir proxy --hash NAME < PASSWORD >> " + path}
	}
	return users, nil
}

// advice is an error with a hint.
type advice struct {
	error
	hint string
}

func (a advice) Hint() string  { return a.hint }
func (a advice) Unwrap() error { return a.error }
