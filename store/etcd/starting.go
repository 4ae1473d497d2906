package etcd

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// ErrRuns means that another process runs the member of a directory, or works on it.
var ErrRuns = errors.New("another weir-store has it open: it runs already (systemctl status " +
	"weir-store), or another command has not ended")

// needed is the space that etcd reserves at a start: two files of its log, and some for the rest.
const needed = "160 MiB"

// embedEtcd starts etcd, which panics or exits where it could return an error.
func embedEtcd(cfg *embed.Config, log *zap.Logger) (e *embed.Etcd, err error) {
	var ready atomic.Bool
	defer func() {
		ready.Store(true)
		if said := recover(); said != nil {
			failed, ok := said.(startError)
			if !ok {
				panic(said)
			}
			err = failed
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: free %s there, and try again", err, needed)
		}
	}()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log.WithOptions(
		zap.WithPanicHook(startHook{&ready, zapcore.WriteThenPanic}),
		zap.WithFatalHook(startHook{&ready, zapcore.WriteThenFatal})))
	return embed.StartEtcd(cfg)
}

// startError is why etcd gave up at its start.
type startError struct{ error }

func (e startError) Unwrap() error { return e.error }

// startHook has the start end with an error where etcd would panic or exit.
type startHook struct {
	ready *atomic.Bool // etcd runs, and may end the process
	later zapcore.CheckWriteHook
}

// OnWrite implements zapcore.CheckWriteHook.
func (h startHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	if h.ready.Load() {
		h.later.OnWrite(e, fields)
		return
	}
	why := errors.New(e.Message)
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok {
			why = fmt.Errorf("%s: %w", e.Message, err)
		}
	}
	panic(startError{why})
}
