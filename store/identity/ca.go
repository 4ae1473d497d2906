package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Certificates are valid between these days, which is whatever a clock of Linux shows: members of
// the embedded etcd verify each other by their clocks. The end is that of RFC 5280, 4.1.2.5, for no
// end. Our own code verifies as of checked.
var (
	notBefore = time.Unix(0, 0).UTC()
	checked   = time.Date(2020, 7, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// serverName is the DNS name in the certificates of all weir-stores: a client accepts each of them
// at each address.
const serverName = "weir-store"

// caPrefix begins the common name of a CA; the id of the cluster follows.
const caPrefix = "weir-ca:"

// CA signs certificates.
type CA struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

// NewCA makes the CA of a cluster.
func NewCA(cluster string) (*CA, error) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          NewSerial().number(),
		Subject:               pkix.Name{CommonName: caPrefix + cluster},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(nil, template, template, public, key)
	if err != nil {
		return nil, err
	}
	return loadCA(der, key)
}

func loadCA(der []byte, key ed25519.PrivateKey) (*CA, error) {
	cert, err := parseCA(der)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(key.Public().(ed25519.PublicKey), cert.PublicKey.(ed25519.PublicKey)) {
		return nil, errors.New("the key is not that of the CA's certificate")
	}
	return &CA{cert, key}, nil
}

func parseCA(der []byte) (*x509.Certificate, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if _, ok := cert.PublicKey.(ed25519.PublicKey); !ok || !cert.IsCA {
		return nil, errors.New("not the certificate of a CA with an Ed25519 key")
	}
	return cert, nil
}

// Certificate returns the CA's certificate.
func (ca *CA) Certificate() []byte { return ca.cert.Raw }

// Key returns the CA's key, which signs the documents of hosts (w/node/NAME) too.
func (ca *CA) Key() ed25519.PrivateKey { return ca.key }

// CAKey returns the public key of a CA's certificate.
func CAKey(der []byte) (ed25519.PublicKey, error) {
	cert, err := parseCA(der)
	if err != nil {
		return nil, err
	}
	return cert.PublicKey.(ed25519.PublicKey), nil
}

// CACluster returns the id of the cluster of a CA's certificate.
func CACluster(der []byte) (string, error) {
	cert, err := parseCA(der)
	if err != nil {
		return "", err
	}
	return (&CA{cert: cert}).Cluster(), nil
}

// Fingerprint is the SHA-256 of a CA's certificate.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the fingerprint of a certificate.
func FingerprintOf(der []byte) Fingerprint { return sha256.Sum256(der) }

// Issue returns a certificate.
func (ca *CA) Issue(id ID, key ed25519.PublicKey, serial Serial) (der []byte, err error) {
	if _, err := ParseID(id.String()); err != nil {
		return nil, err
	}
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%v: a key of %d bytes, not of Ed25519", id, len(key))
	}
	template := &x509.Certificate{
		SerialNumber: serial.number(),
		Subject:      pkix.Name{CommonName: id.String()},
		NotBefore:    notBefore,
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if id.Kind == Store {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames = []string{serverName}
	}
	return x509.CreateCertificate(nil, template, ca.cert, key, ca.key)
}

func (s Serial) number() *big.Int { return new(big.Int).SetBytes(s[:]) }

// Peer is what a verified certificate says.
type Peer struct {
	ID     ID
	Serial Serial
	Key    ed25519.PublicKey
}

// ParsePeer reads a certificate whose signature was verified.
func ParsePeer(cert *x509.Certificate) (Peer, error) {
	id, err := ParseID(cert.Subject.CommonName)
	if err != nil {
		return Peer{}, err
	}
	key, ok := cert.PublicKey.(ed25519.PublicKey)
	if !ok || cert.SerialNumber.Sign() < 0 || cert.SerialNumber.BitLen() > 8*len(Serial{}) {
		return Peer{}, fmt.Errorf("%v: not a certificate of a cluster", id)
	}
	p := Peer{ID: id, Key: key}
	cert.SerialNumber.FillBytes(p.Serial[:])
	return p, nil
}

// Cluster returns the id of the CA's cluster.
func (ca *CA) Cluster() string { return strings.TrimPrefix(ca.cert.Subject.CommonName, caPrefix) }
