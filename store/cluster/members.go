package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Members is the document below TableTree: the members of a shared table in one bucket.
type Members struct {
	Versioned
	Members []Member `json:"members"`
}

// Member is a member of a shared table.
type Member struct {
	Prefix netip.Prefix `json:"prefix"`
	Value  uint32       `json:"value,omitempty"`
}

// Check implements Document.
func (m *Members) Check() error {
	if len(m.Members) == 0 {
		return errors.New("the list of members is empty: then the value has to be empty")
	}
	for _, one := range m.Members {
		if p := one.Prefix; !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("%v is not a prefix", p)
		}
	}
	return ascending("members", m.Members, func(a, b Member) int {
		return a.Prefix.Compare(b.Prefix)
	})
}

// BucketKey returns the key with the bucket of a shared table that a prefix belongs to.
func BucketKey(table string, p netip.Prefix) string {
	sum := sha256.Sum256([]byte(p.Masked().String()))
	return fmt.Sprintf("%s%s/%02x", TableTree, table, sum[0])
}

// decodeMembers reads the bucket of a shared table. A member in another bucket than its own could
// be there twice, so that its removal from one would not end it.
func decodeMembers(key string, value []byte) ([]Member, error) {
	table, _, _ := strings.Cut(strings.TrimPrefix(key, TableTree), "/")
	if err := CheckName(table); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if len(value) == 0 {
		return nil, nil
	}
	m, err := Decode[Members](value)
	if err != nil {
		return nil, err
	}
	for _, one := range m.Members {
		if BucketKey(table, one.Prefix) != key {
			return nil, fmt.Errorf("%w: %v belongs into %s", ErrDocument, one.Prefix,
				BucketKey(table, one.Prefix))
		}
	}
	return m.Members, nil
}
