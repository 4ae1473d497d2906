package identity

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

// A file of an identity has a private key and certificates in PEM, in the order key, own
// certificate, CAs. That of a CA has its key and its certificate. Both are secret: mode 0600.

const (
	pemKey  = "PRIVATE KEY"
	pemCert = "CERTIFICATE"
)

// MarshalPEM returns the content of a credential's file.
func (c *Credential) MarshalPEM() ([]byte, error) {
	return marshal(c.Key, append([][]byte{c.Certificate}, c.CAs...))
}

// ParseCredential is the opposite of MarshalPEM.
func ParseCredential(file []byte) (*Credential, error) {
	key, certs, err := parse(file)
	if err != nil {
		return nil, err
	}
	if len(certs) < 2 {
		return nil, errors.New("the file of a credential needs its certificate and that of the CA")
	}
	c := &Credential{Certificate: certs[0], Key: key, CAs: certs[1:]}
	peer, err := c.Peer()
	if err != nil {
		return nil, err
	}
	if !peer.Key.Equal(key.Public()) {
		return nil, errors.New("the key is not that of the certificate")
	}
	_, err = pool(c.CAs)
	return c, err
}

// ReadCredential reads the file of a credential. One that others could read is refused, not
// changed: its key may be known.
func ReadCredential(path string) (*Credential, error) { return readFile(path, ParseCredential) }

// ReadCA is ReadCredential for the file of a CA.
func ReadCA(path string) (*CA, error) { return readFile(path, ParseCA) }

func readFile[T any](path string, parse func([]byte) (T, error)) (as T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return as, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return as, err
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return as, fmt.Errorf("%s has mode %04o: others could read the key; if they did not, run "+
			"chmod 600 on it, otherwise replace the key", path, mode.Perm())
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return as, err
	}
	if as, err = parse(text); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return as, err
}

// MarshalPEM returns the content of the CA's file.
func (ca *CA) MarshalPEM() ([]byte, error) { return marshal(ca.key, [][]byte{ca.cert.Raw}) }

// ParseCA is the opposite of MarshalPEM.
func ParseCA(file []byte) (*CA, error) {
	key, certs, err := parse(file)
	if err != nil {
		return nil, err
	}
	if len(certs) != 1 {
		return nil, fmt.Errorf("the file of a CA needs one certificate, not %d", len(certs))
	}
	return loadCA(certs[0], key)
}

func marshal(key ed25519.PrivateKey, certs [][]byte) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	file := pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der})
	for _, c := range certs {
		file = append(file, pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: c})...)
	}
	return file, nil
}

func parse(file []byte) (key ed25519.PrivateKey, certs [][]byte, err error) {
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		switch {
		case block.Type == pemCert:
			certs = append(certs, block.Bytes)
		case block.Type == pemKey && key == nil:
			any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			ed, ok := any.(ed25519.PrivateKey)
			if !ok {
				return nil, nil, errors.New("the private key is not one of Ed25519")
			}
			key = ed
		default:
			return nil, nil, fmt.Errorf("a file of an identity has no %q", block.Type)
		}
	}
	if key == nil {
		return nil, nil, errors.New("the file has no private key")
	}
	return key, certs, nil
}
