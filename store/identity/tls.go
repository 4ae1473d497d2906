package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Credential proves an identity: a certificate with its key, and the CAs of the cluster.
type Credential struct {
	Certificate []byte // DER
	Key         ed25519.PrivateKey
	CAs         [][]byte // DER; the first one signed the certificate
}

// NewKey returns a new private key.
func NewKey() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(nil)
	return key, err
}

// Issue returns a credential with a new key.
func Issue(ca *CA, id ID) (*Credential, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	der, err := ca.Issue(id, key.Public().(ed25519.PublicKey), NewSerial())
	if err != nil {
		return nil, err
	}
	return &Credential{Certificate: der, Key: key, CAs: [][]byte{ca.Certificate()}}, nil
}

// Peer returns what the certificate says.
func (c *Credential) Peer() (Peer, error) {
	cert, err := x509.ParseCertificate(c.Certificate)
	if err != nil {
		return Peer{}, err
	}
	return ParsePeer(cert)
}

// pool returns the CAs.
func pool(cas [][]byte) (*x509.CertPool, error) {
	if len(cas) == 0 {
		return nil, errors.New("the certificate of a CA is missing")
	}
	p := x509.NewCertPool()
	for _, der := range cas {
		cert, err := parseCA(der)
		if err != nil {
			return nil, err
		}
		p.AddCert(cert)
	}
	return p, nil
}

// base is what both ends have in common.
func base() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Time:                   func() time.Time { return checked },
		SessionTicketsDisabled: true,
		NextProtos:             []string{"weir-store/1"},
	}
}

func (c *Credential) chain() []tls.Certificate {
	chain := [][]byte{c.Certificate}
	if len(c.CAs) > 0 {
		chain = append(chain, c.CAs[0]) // one that joins finds the fingerprint of its token
	}
	return []tls.Certificate{{Certificate: chain, PrivateKey: c.Key}}
}

// ClientTLS returns the configuration of an agent's or administrator's connection. The server must
// be a weir-store of the cluster.
func (c *Credential) ClientTLS() (*tls.Config, error) {
	roots, err := pool(c.CAs)
	if err != nil {
		return nil, err
	}
	config := base()
	config.Certificates = c.chain()
	config.Certificates[0].Certificate = config.Certificates[0].Certificate[:1]
	config.RootCAs = roots
	config.ServerName = serverName
	return config, nil
}

// ServerTLS returns the configuration of a weir-store. A client without a certificate is accepted:
// it may join. PeerOf says which one it is.
func (c *Credential) ServerTLS() (*tls.Config, error) {
	roots, err := pool(c.CAs)
	if err != nil {
		return nil, err
	}
	config := base()
	config.Certificates = c.chain()
	config.ClientCAs = roots
	config.ClientAuth = tls.VerifyClientCertIfGiven
	return config, nil
}

// JoinTLS returns the configuration of a host that has a token only. The server must be a
// weir-store whose CA has the token's fingerprint.
func JoinTLS(want Fingerprint) *tls.Config {
	config := base()
	config.InsecureSkipVerify = true // VerifyConnection does it
	config.ServerName = serverName
	config.VerifyConnection = func(state tls.ConnectionState) error {
		for _, cert := range state.PeerCertificates {
			if FingerprintOf(cert.Raw) != want {
				continue
			}
			roots, err := pool([][]byte{cert.Raw})
			if err != nil {
				return err
			}
			_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: serverName,
				Roots: roots, CurrentTime: checked,
				KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			return err
		}
		return errors.New("this is not the cluster that the token is for: the fingerprint of its " +
			"CA differs; nothing was sent, check the address")
	}
	return config
}

// PeerOf returns who is at the other end of a connection whose handshake is done; ok is false for
// one without a certificate.
func PeerOf(state tls.ConnectionState) (p Peer, ok bool, err error) {
	if len(state.VerifiedChains) == 0 {
		if len(state.PeerCertificates) > 0 {
			return Peer{}, false, errors.New("the certificate was not verified")
		}
		return Peer{}, false, nil
	}
	p, err = ParsePeer(state.PeerCertificates[0])
	if err != nil {
		return Peer{}, false, fmt.Errorf("the certificate: %w", err)
	}
	return p, true, nil
}

// Verify checks that one of the CAs signed the certificate, and that it is for the key.
func (c *Credential) Verify() (Peer, error) {
	roots, err := pool(c.CAs)
	if err != nil {
		return Peer{}, err
	}
	cert, err := x509.ParseCertificate(c.Certificate)
	if err != nil {
		return Peer{}, err
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: checked,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return Peer{}, err
	}
	p, err := ParsePeer(cert)
	if err != nil {
		return Peer{}, err
	}
	if !p.Key.Equal(c.Key.Public()) {
		return Peer{}, errors.New("the certificate is for another key")
	}
	return p, nil
}
