package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/weirnet/weir/eyeballs"
)

// Client sends requests to the node behind a socket. It may be used by several goroutines.
type Client struct {
	socket string
	http   http.Client
}

// ErrNoNode means that no node answers on the socket.
var ErrNoNode = errors.New("no node is running")

// Get and Stream wait this long for an answer to begin, Post for changes longer: the kernel takes
// its time for tens of thousands of rules.
const (
	readTimeout   = 30 * time.Second
	changeTimeout = 5 * time.Minute
)

// NewClient returns a client of the node whose API listens on a unix socket, or on the first of
// several that may be opened. Nothing is dialed yet.
func NewClient(socket string, others ...string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(eyeballs.Dialer).DialContext(ctx, "unix", socket)
		for _, other := range others {
			if !errors.Is(err, fs.ErrPermission) {
				break
			}
			if c, bad := new(eyeballs.Dialer).DialContext(ctx, "unix", other); bad == nil {
				return c, nil
			}
		}
		return c, err
	}
	return &Client{socket: socket,
		http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true,
			ResponseHeaderTimeout: changeTimeout}}}
}

// Get requests a value; the package documentation lists the paths.
func (c *Client) Get(ctx context.Context, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return c.ask(ctx, http.MethodGet, path, nil, answer)
}

// Post requests a change. request may be nil.
func (c *Client) Post(ctx context.Context, path string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return c.ask(ctx, http.MethodPost, path, request, answer)
}

// Wait waits until the node answers, at most for a time.
func (c *Client) Wait(ctx context.Context, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		var s Status
		err := c.Get(ctx, "/v1/status", &s)
		if err == nil || !errors.Is(err, ErrNoNode) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Client) ask(ctx context.Context, method, path string, request, answer any) error {
	var body io.Reader
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	// The host is not looked up: every connection goes to the socket.
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return err
	}
	w, err := c.http.Do(r)
	if err != nil {
		return c.refine(err)
	}
	defer w.Body.Close()
	if w.StatusCode >= 400 {
		return readError(w)
	}
	if err := json.NewDecoder(w.Body).Decode(answer); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return silent{c.socket}
		}
		return fmt.Errorf("answer of the node: %w", err)
	}
	return nil
}

// readError makes an error of an answer.
func readError(w *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(w.Body, 1<<20))
	if err != nil {
		return err
	}
	e := &Error{later: w.StatusCode == http.StatusServiceUnavailable}
	if json.Unmarshal(text, e) != nil || e.Message == "" {
		return fmt.Errorf("the node answered %s", w.Status)
	}
	return e
}

// refine turns an error of the transport into one for people.
func (c *Client) refine(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return noNode{c.socket}
	case errors.Is(err, fs.ErrPermission):
		return &Error{Message: "not permitted to talk to the node on " + c.socket,
			Advice: "run as root; members of group weir may look"}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		timedOut(err):
		return silent{c.socket}
	}
	return fmt.Errorf("talk to the node on %s: %w", c.socket, errors.Unwrap(err))
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// ErrSilent means that a node listens on the socket and does not answer in time.
var ErrSilent = errors.New("the node does not answer")

type silent struct{ socket string }

func (e silent) Error() string   { return ErrSilent.Error() + " on " + e.socket }
func (e silent) Is(t error) bool { return t == ErrSilent }

// Hint returns where to look.
func (silent) Hint() string {
	return "it is very busy or stopped: look with ps -C weir -o pid,stat,args (T: stopped; kill " +
		"-CONT PID resumes it)"
}

type noNode struct{ socket string }

func (e noNode) Error() string   { return ErrNoNode.Error() + " on " + e.socket }
func (e noNode) Is(t error) bool { return t == ErrNoNode }

// Hint returns how to start a node.
func (e noNode) Hint() string { return "start one: weir up --iface eth0" }
