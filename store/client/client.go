package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// DefaultSilence is how long a weir-store may be silent before the client goes to the next one.
const DefaultSilence = 15 * time.Second

// Config has the identity of the client and the addresses of the weir-stores.
type Config struct {
	Name    string          // of the host: with it, each host has an own order of weir-stores
	Cluster string          // id; other clusters are refused. "": any
	Stores  func() []string // addresses, host:port; called before every attempt
	TLS     *tls.Config     // identity.Credential.Client

	// Dial connects; it is eyeballs.Dialer.DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	Silence time.Duration  // 0: DefaultSilence
	Random  func() float64 // in [0, 1), for pauses; nil: math/rand
}

// Client is a connection to the weir-stores. It is safe for concurrent use.
type Client struct {
	config Config

	dialing chan struct{} // has one token: it who takes it may dial

	mu      sync.Mutex
	current *session // the last one; it may have ended
	next    int      // which of the ordered stores is tried next
	state   State
	closed  bool
	follows bool
}

var _ store.Store = (*Client)(nil)

// State is the state of the connection.
type State struct {
	Address     string    // of the weir-store that is connected, or was last
	Connected   bool      // now
	Heard       time.Time // when it, or through it the store, was last heard; zero: never
	Revision    int64     // of the weir-store, as it last said
	PercentFull int       // of the store, as it last said; 0: not known
	Err         error     // why the last connection ended, or could not be made
}

// New makes a client. It does not connect before the first call. Close it.
func New(c Config) (*Client, error) {
	if c.TLS == nil || c.Dial == nil || c.Stores == nil {
		return nil, errors.New("a client needs TLS, Dial and Stores")
	}
	if c.Silence == 0 {
		c.Silence = DefaultSilence
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	client := &Client{config: c, dialing: make(chan struct{}, 1)}
	client.dialing <- struct{}{}
	return client, nil
}

// Close ends the connection, every watch and Follow.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.current != nil {
		c.current.end(errClosed)
	}
	return nil
}

var errClosed = fmt.Errorf("%w: the client was closed", store.ErrUnavailable)

// State returns the state of the connection.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// order returns the addresses in the order in which a host tries them: by the hash of its name with
// theirs. So hosts spread evenly, and the hosts of one that ends spread over all others.
func order(name string, addresses []string) []string {
	weight := func(address string) string {
		sum := sha256.Sum256([]byte(name + "\x00" + address))
		return string(sum[:])
	}
	ordered := slices.Clone(addresses)
	slices.SortFunc(ordered, func(a, b string) int { return cmp.Compare(weight(a), weight(b)) })
	return slices.Compact(ordered)
}

// live returns the current session if it has not ended.
func (c *Client) live() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.current == nil || c.current.ended() != nil {
		return nil, nil
	}
	return c.current, nil
}

// session returns a live session. It tries every weir-store once.
func (c *Client) session(ctx context.Context) (*session, error) {
	if s, err := c.live(); s != nil || err != nil {
		return s, err
	}
	select {
	case <-c.dialing:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { c.dialing <- struct{}{} }()
	if s, err := c.live(); s != nil || err != nil {
		return s, err
	}
	addresses := order(c.config.Name, c.config.Stores())
	if len(addresses) == 0 {
		return nil, c.failed("", fmt.Errorf("%w: no weir-store is known", store.ErrUnavailable))
	}
	var failures []string
	answered := false
	for range addresses {
		c.mu.Lock()
		address := addresses[c.next%len(addresses)]
		c.mu.Unlock()
		s, err := c.connect(ctx, address)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		_ = c.failed(address, err)
		failures = append(failures, fmt.Sprintf("%s: %v", address, err))
		if errors.Is(err, store.ErrPermission) {
			return nil, err
		}
		var dialed *dialError
		answered = answered || !errors.As(err, &dialed)
	}
	err := fmt.Errorf("%w: %s", store.ErrUnavailable, strings.Join(failures, "; "))
	if answered {
		return nil, err
	}
	return nil, &unreachedError{err}
}

// failed notes why there is no connection, and that the next weir-store is to be tried.
func (c *Client) failed(address string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.state.Connected, c.state.Err = false, err
	if address != "" {
		c.state.Address = address
	}
	return err
}

// connect makes the session current.
func (c *Client) connect(ctx context.Context, address string) (*session, error) {
	call, cancel := context.WithTimeout(ctx, c.config.Silence/3)
	defer cancel()
	s, err := dial(call, &c.config, address, c.heard)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		s.end(errClosed)
		return nil, errClosed
	}
	c.current = s
	c.state = State{Address: address, Connected: true, Heard: time.Now(),
		Revision: s.welcome.Revision}
	c.mu.Unlock()
	go func() {
		err := s.run()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.current == s {
			c.next++
			c.state.Connected, c.state.Err = false, err
		}
	}()
	return s, nil
}

// heard notes that weir-store reported its state.
func (c *Client) heard(s *session, m wire.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == s {
		c.state.Heard, c.state.Revision = time.Now().Add(-m.Silent), m.Revision
		c.state.PercentFull = m.PercentFull
	}
}
