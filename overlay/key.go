package overlay

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/weirnet/weir/internal/atomicfile"
)

// Key is a Curve25519 key, or a pre-shared key, of 32 bytes. Its text form is wg(8)'s: base64.
type Key [32]byte

// ParseKey reads a key in base64.
func ParseKey(s string) (Key, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil || len(b) != len(Key{}) {
		return Key{},
			errors.New("overlay: not a key: a key has 32 bytes in base64, 44 characters, as " +
				"`wg genkey` prints it")
	}
	return Key(b), nil
}

// NewPrivateKey makes a private key.
func NewPrivateKey() (Key, error) {
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("overlay: make a key: %w", err)
	}
	return Key(k.Bytes()), nil
}

// Public returns the public key of a private key.
func (k Key) Public() Key {
	p, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		panic(err) // only for a wrong length
	}
	return Key(p.PublicKey().Bytes())
}

// IsZero reports whether k is the zero key, which stands for none.
func (k Key) IsZero() bool { return k == Key{} }

// String is the key in base64. Do not print private ones.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

func (k Key) hex() string { return hex.EncodeToString(k[:]) }

// MarshalText implements encoding.TextMarshaler.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Key) UnmarshalText(b []byte) (err error) {
	*k, err = ParseKey(string(b))
	return err
}

// LoadKey reads the private key of this node from a file. If there is no file, it makes a key and
// the file. Only the owner may read the file (0600); one that others can read is refused.
func LoadKey(path string) (Key, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createKey(path)
	}
	if err != nil {
		return Key{}, fmt.Errorf("overlay: private key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Key{},
			fmt.Errorf("overlay: private key %s can be read by others (mode %#o); if they did "+
				"not, "+
				"run chmod 600 on it", path, info.Mode().Perm())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fmt.Errorf("overlay: private key: %w", err)
	}
	k, err := ParseKey(string(b))
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// createKey writes a new key. The file appears whole or not at all. A crash leaves no key behind on
// file systems with unnamed files (O_TMPFILE).
func createKey(path string) (Key, error) {
	k, err := NewPrivateKey()
	if err != nil {
		return Key{}, err
	}
	err = atomicfile.Create(path, []byte(k.String()+"\n"))
	if errors.Is(err, fs.ErrExist) { // another process was faster
		return LoadKey(path)
	}
	if err != nil {
		return Key{}, fmt.Errorf("overlay: private key: %w", err)
	}
	return k, nil
}
