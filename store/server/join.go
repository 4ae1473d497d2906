package server

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/weirnet/weir/store/wire"
)

// join answers a host that has a token.
func (s *Server) join(secured *tls.Conn, body []byte) error {
	answer, err := s.joinAnswer(secured, body)
	if deadline := secured.SetDeadline(time.Now().Add(s.firstTimeout())); deadline != nil {
		return deadline
	}
	if err != nil {
		s.Counters.JoinsRefused.Add(1)
		if s.refusals.Allow() {
			s.config.Log.Warn("a host could not join", "from", secured.RemoteAddr(), "err", err,
				"all", s.Counters.JoinsRefused.Load())
		}
		_, _ = secured.Write(wire.EncodeRefused(err.Error())) // the connection ends anyway
		return err
	}
	s.Counters.Joins.Add(1)
	_, err = secured.Write(wire.Frame(wire.TypeJoined, answer))
	return err
}

func (s *Server) joinAnswer(secured *tls.Conn, body []byte) ([]byte, error) {
	m, err := wire.DecodeJoin(body)
	if err != nil {
		return nil, err
	}
	if s.config.Join == nil {
		return nil, errors.New("no host can join through this weir-store")
	}
	ctx, cancel := context.WithTimeout(context.Background(), joinTimeout)
	defer cancel()
	go func() {
		select {
		case <-s.state.closed:
			cancel() // Close does not wait for it
		case <-ctx.Done():
		}
	}()
	if err := secured.SetDeadline(time.Now().Add(joinTimeout)); err != nil {
		return nil, err
	}
	return s.config.Join(ctx, secured.ConnectionState(), m)
}
