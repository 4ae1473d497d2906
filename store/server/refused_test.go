package server

import (
	"errors"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

// TestRefusedConnectionCommitsNothing: a transaction may be under way when its connection is
// refused. It is not committed, wherever it is: before its first check, or between that and the
// comparison with what admits the certificate.
func TestRefusedConnectionCommitsNothing(t *testing.T) {
	const key = "w/report/b"
	for name, refuse := range map[string]func(*conn){
		"before the check": (*conn).end,
		"after the check":  nil,
	} {
		model := storetest.NewModel(time.Second)
		c := &conn{server: &Server{state: newState()}}
		c.admitted = Admission{Key: "w/node/b", Revision: 1, Check: func(Get, store.Txn) error {
			if refuse == nil {
				c.end()
			}
			return nil
		}}
		if refuse != nil {
			refuse(c)
		}
		_, err := (&admitted{Store: model, conn: c}).Commit(t.Context(),
			store.Txn{Put: []store.Entry{{Key: key, Value: []byte("1")}}})
		if !errors.Is(err, store.ErrPermission) {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := model.Read(t.Context(), key, 0); err != nil || len(got.Entries) > 0 {
			t.Errorf("%s: the store has %v, %v", name, got.Entries, err)
		}
	}
}
