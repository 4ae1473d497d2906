package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestStreamsOfAUser: one user has only so many streams, and others get theirs, as many as there
// may be. When one ends, its user gets another one.
func TestStreamsOfAUser(t *testing.T) {
	inside := make(chan struct{})
	socket := ReadOnly(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		<-r.Context().Done()
	}), nothing)
	watch := func(uid int) (refusal string, end func()) {
		ctx, cancel := context.WithCancel(WithClientUID(t.Context(), uid))
		answer, done := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(done)
			r := httptest.NewRequest("GET", "/v1/events", strings.NewReader(""))
			socket.ServeHTTP(timely{answer}, r.WithContext(ctx))
		}()
		end = func() { cancel(); <-done }
		select {
		case <-inside:
			return "", end
		case <-done:
			cancel()
			return answer.Body.String(), func() {}
		}
	}
	var last func()
	for uid := 1000; uid < 1000+streamsAtOnce/streamsOfUser; uid++ {
		for n := range streamsOfUser {
			refusal, end := watch(uid)
			if refusal != "" {
				t.Fatalf("stream %d of user %d: %s", n, uid, refusal)
			}
			defer end()
			last = end
		}
		refusal, _ := watch(uid)
		if !strings.Contains(refusal, "8 readers of user") {
			t.Errorf("a stream too many of user %d: %q", uid, refusal)
		}
	}
	if refusal, _ := watch(0); !strings.Contains(refusal, "32 readers watch") {
		t.Errorf("a stream too many: %q", refusal)
	}
	last()
	refusal, end := watch(1000 + streamsAtOnce/streamsOfUser - 1)
	if refusal != "" {
		t.Errorf("after one has ended: %s", refusal)
	}
	end()
}
