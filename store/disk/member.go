package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store/cluster"
)

// Member is what a host got when it joined: whom it trusts, and who it is. It has a private key and
// lies in the directory of the copy with mode 0600. A host without it has no cluster.
type Member struct {
	Version    int            `json:"version"`
	Name       string         `json:"name"`
	Cluster    cluster.Serial `json:"cluster"`
	Epoch      uint64         `json:"epoch"`
	Stores     []string       `json:"stores"`     // addresses of weir-stores, HOST:PORT
	Node       []byte         `json:"node"`       // the value of its key below cluster.NodeTree
	Credential string         `json:"credential"` // PEM, as package identity writes it
	// Admins is the list of the keys of administrators of the invitation.
	Admins cluster.KeyList `json:"admins,omitzero"`
	// Revoked are serial numbers of hosts whose certificates were revoked then.
	Revoked []cluster.Serial `json:"ended,omitempty"` // the key is older than the word
}

// memberVersion is the version of the file.
const memberVersion = 1

// MemberFile is the name of the file in the directory of the copy.
const MemberFile = "member"

// Write writes the file.
func (m *Member) Write(dir string) error {
	m.Version = memberVersion
	if err := m.check(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, MemberFile), append(b, '\n'))
}

// check returns an error for a file that this Weir has not written.
func (m *Member) check() error {
	n, err := cluster.Decode[cluster.Node](m.Node)
	switch {
	case m.Version != memberVersion:
		return fmt.Errorf("it is of version %d, this Weir knows %d", m.Version, memberVersion)
	case err != nil:
		return err
	case n.Name != m.Name:
		return fmt.Errorf("the certificate belongs to host %s, not %s", n.Name, m.Name)
	case len(m.Stores) == 0 || m.Credential == "" || m.Cluster == (cluster.Serial{}):
		return fmt.Errorf("there is no cluster, no weir-store or no key in it")
	}
	return nil
}

// ErrExposed means that others could read the key of this host.
var ErrExposed = errors.New("others could read the key of this host")

// checkPrivate refuses a file that others can read, as package identity does. In a directory that
// they cannot enter, as Open leaves it, they cannot, whatever the mode of the file is.
func checkPrivate(dir, file string) error {
	in, err := os.Stat(dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && in.Mode().Perm()&0o011 != 0 {
		return fmt.Errorf("%s has mode %04o: %w; run chmod 600 on it, and then, if they did, weir "+
			"join, which replaces the key", file, mode, ErrExposed)
	}
	return nil
}

// ReadMember reads the file; the error is fs.ErrNotExist on a host that has not joined a cluster.
// One that others can read is refused, not changed: its key may be known.
func ReadMember(dir string) (*Member, error) {
	file := filepath.Join(dir, MemberFile)
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(dir, file); err != nil {
		return nil, err
	}
	m := new(Member)
	if err = json.Unmarshal(b, m); err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}
