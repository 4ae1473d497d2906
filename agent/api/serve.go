package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/weirnet/weir/internal/filehint"
)

// maxRequest bounds the body of a request: a rule file of a million table entries fits.
const maxRequest = 64 << 20

// Answer returns the handler of a request without a body.
func Answer[A any](ask func() (A, error)) http.HandlerFunc {
	return AnswerContext(func(context.Context) (A, error) { return ask() })
}

// AnswerContext is Answer with the context of the request.
func AnswerContext[A any](ask func(context.Context) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		WriteAnswer(w, func() (A, error) { return ask(r.Context()) })
	}
}

// Change returns the handler of a request with a body.
func Change[R, A any](ask func(R) (A, error)) http.HandlerFunc {
	return ChangeContext(func(_ context.Context, r R) (A, error) { return ask(r) })
}

// ChangeContext is Change with the context of the request, which ends when the client disconnects.
func ChangeContext[R, A any](ask func(context.Context, R) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request R
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		d.DisallowUnknownFields()
		if err := d.Decode(&request); err != nil {
			WriteError(w, http.StatusBadRequest, fmt.Errorf("read the request: %w", err))
			return
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			WriteError(w, http.StatusBadRequest,
				errors.New("read the request: more than one value"))
			return
		}
		WriteAnswer(w, func() (A, error) { return ask(r.Context(), request) })
	}
}

// WriteAnswer answers with what ask returns.
func WriteAnswer[A any](w http.ResponseWriter, ask func() (A, error)) {
	a, err := ask()
	if err != nil {
		status := http.StatusUnprocessableEntity
		if errors.Is(err, ErrLater) {
			status = http.StatusServiceUnavailable
		}
		WriteError(w, status, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(a)
}

// WriteError answers with what went wrong, and with a report of each mistake if it was in rule
// text.
func WriteError(w http.ResponseWriter, status int, err error) {
	e := Error{Version: Version, Message: err.Error()}
	var hint interface{ Hint() string }
	if errors.As(err, &hint) {
		e.Advice = hint.Hint()
	}
	e.Advice = cmp.Or(e.Advice, filehint.Of(err))
	var report interface{ Report() string }
	if errors.As(err, &report) {
		e.Details = report.Report()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(e)
}
