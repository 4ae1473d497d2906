package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

func newCA(t *testing.T) *CA {
	t.Helper()
	ca, err := NewCA("c1")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *CA, kind Kind) *Credential {
	t.Helper()
	c, err := Issue(ca, ID{kind, "a"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientConfig(t *testing.T, c *Credential) *tls.Config {
	t.Helper()
	config, err := c.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func serverConfig(t *testing.T, c *Credential) *tls.Config {
	t.Helper()
	config, err := c.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// connect makes a handshake and returns what each end knows.
func connect(t *testing.T, client, server *tls.Config) (c, s *tls.Conn, failed error) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	late := time.Now().Add(time.Minute)
	a.SetDeadline(late)
	b.SetDeadline(late)
	c, s = tls.Client(a, client), tls.Server(b, server)
	result := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x")) // in TLS 1.3 the client is done before it was verified
		}
		if err != nil {
			b.Close()
		}
		result <- err
	}()
	err := c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err != nil {
		a.Close()
	}
	if other := <-result; err == nil {
		err = other
	}
	return c, s, err
}

// TestConnections: who may connect to whom.
func TestConnections(t *testing.T) {
	ca, foreign := newCA(t), newCA(t)
	store, host := issue(t, ca, Store), issue(t, ca, Host)
	config := serverConfig(t, store)
	for _, kind := range []Kind{Host, Admin, Feed, Store} {
		own := issue(t, ca, kind)
		_, s, err := connect(t, clientConfig(t, own), config)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		want, err := own.Peer()
		if err != nil {
			t.Fatal(err)
		}
		p, ok, err := PeerOf(s.ConnectionState())
		if err != nil || !ok || p.ID != (ID{kind, "a"}) || p.Serial != want.Serial ||
			!p.Key.Equal(own.Key.Public()) {
			t.Errorf("%s: %+v, %v, %v", kind, p, ok, err)
		}
		if s.ConnectionState().Version != tls.VersionTLS13 || s.ConnectionState().DidResume {
			t.Errorf("%s: version %x", kind, s.ConnectionState().Version)
		}
	}
	refused := func(what string, client, server *tls.Config) {
		t.Helper()
		if _, _, err := connect(t, client, server); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	refused("a host of another cluster", func() *tls.Config {
		c := clientConfig(t, issue(t, foreign, Host))
		c.RootCAs = clientConfig(t, host).RootCAs
		return c
	}(), config)
	refused("a server of another cluster", clientConfig(t, host),
		serverConfig(t, issue(t, foreign, Store)))
	refused("a host that says it is a weir-store", clientConfig(t, host), serverConfig(t, host))
	refused("an admin that says it is a weir-store", clientConfig(t, host),
		serverConfig(t, issue(t, ca, Admin)))
	old := clientConfig(t, host)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	refused("TLS 1.2", old, config)

	// A host that signs a certificate with its own key is not a CA.
	forged := &Credential{Key: issue(t, ca, Host).Key, CAs: host.CAs}
	own, err := x509.ParseCertificate(host.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	template := *own
	template.Subject = pkix.Name{CommonName: "admin:a"}
	forged.Certificate, err = x509.CreateCertificate(nil, &template, own, forged.Key.Public(),
		host.Key)
	if err != nil {
		t.Fatal(err)
	}
	chained := clientConfig(t, forged)
	chained.Certificates[0].Certificate = append(chained.Certificates[0].Certificate,
		host.Certificate)
	refused("a certificate that a host signed", chained, config)

	// Without a certificate the handshake is made, and the server knows that.
	_, s, err := connect(t, JoinTLS(FingerprintOf(ca.Certificate())), config)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok, err := PeerOf(s.ConnectionState()); ok || err != nil {
		t.Errorf("without a certificate: %+v, %v", p, err)
	}
}

// TestJoining: a host with a token talks to a weir-store of the token's CA only.
func TestJoining(t *testing.T) {
	ca, foreign := newCA(t), newCA(t)
	joining := JoinTLS(FingerprintOf(ca.Certificate()))
	for what, server := range map[string]*Credential{
		"another cluster":       issue(t, foreign, Store),
		"a host of the cluster": issue(t, ca, Host),
		"another cluster that has the CA's certificate": func() *Credential {
			c := issue(t, foreign, Store)
			c.CAs = [][]byte{ca.Certificate()}
			return c
		}(),
	} {
		if _, _, err := connect(t, joining, serverConfig(t, server)); err == nil {
			t.Errorf("joined %s", what)
		}
	}
}

// TestProof: a proof is good for its token, its connection and its request.
func TestProof(t *testing.T) {
	ca := newCA(t)
	config := serverConfig(t, issue(t, ca, Store))
	token := NewToken(FingerprintOf(ca.Certificate()))
	c, s, err := connect(t, JoinTLS(token.CA), config)
	if err != nil {
		t.Fatal(err)
	}
	v, request := token.Verifier(), []byte("name")
	proof, err := token.Proof(c.ConnectionState(), request)
	if err != nil || !v.Proves(s.ConnectionState(), request, proof) {
		t.Fatalf("the proof is not accepted: %v", err)
	}
	_, other, err := connect(t, JoinTLS(token.CA), config)
	if err != nil {
		t.Fatal(err)
	}
	if v.Proves(other.ConnectionState(), request, proof) {
		t.Error("accepted on another connection")
	}
	if v.Proves(s.ConnectionState(), []byte("other"), proof) {
		t.Error("accepted for another request")
	}
	if NewToken(token.CA).Verifier().Proves(s.ConnectionState(), request, proof) {
		t.Error("accepted for another token")
	}
	if v.Proves(s.ConnectionState(), request, nil) {
		t.Error("accepted without a proof")
	}
}

// TestVerifierProvesNothing: one that reads the store, and so has the verifier of a token, cannot
// join with it. It is of no use as the key of a code, nor as the key or the secret of a proof.
func TestVerifierProvesNothing(t *testing.T) {
	ca := newCA(t)
	token := NewToken(FingerprintOf(ca.Certificate()))
	c, s, err := connect(t, JoinTLS(token.CA), serverConfig(t, issue(t, ca, Store)))
	if err != nil {
		t.Fatal(err)
	}
	v, request, state := token.Verifier(), []byte("name"), c.ConnectionState()
	exported, err := state.ExportKeyingMaterial("EXPORTER-weir-join", nil, 32)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, v[:])
	mac.Write(exported)
	mac.Write(request)
	b, err := bound(state, "join", request)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := Token{Secret: [16]byte(v[:16])}.Proof(state, request)
	if err != nil {
		t.Fatal(err)
	}
	for what, forged := range map[string][]byte{"the key of a code": mac.Sum(nil),
		"the key of a proof": ed25519.Sign(ed25519.NewKeyFromSeed(v[:]), b),
		"the secret":         secret} {
		if v.Proves(s.ConnectionState(), request, forged) {
			t.Errorf("the verifier is taken as %s", what)
		}
	}
}

// TestProofIsOfOneConnection: a proof of a token, and what a host signs to join again, are worth
// nothing on another connection, for another request, or for each other. A weir-store that is an
// attacker's cannot use those of a host that tried to join there.
func TestProofIsOfOneConnection(t *testing.T) {
	ca := newCA(t)
	token, server := NewToken(FingerprintOf(ca.Certificate())), serverConfig(t, issue(t, ca, Store))
	states := func() (client, store tls.ConnectionState) {
		t.Helper()
		c, s, err := connect(t, JoinTLS(token.CA), server)
		if err != nil {
			t.Fatal(err)
		}
		return c.ConnectionState(), s.ConnectionState()
	}
	mine, here := states()
	_, elsewhere := states()
	must := func(b []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	request, another := []byte("request"), []byte("another")
	proof, again := must(token.Proof(mine, request)), must(Binding(mine, request))
	v := token.Verifier()
	if !v.Proves(here, request, proof) || !bytes.Equal(again, must(Binding(here, request))) {
		t.Error("the ends of a connection do not agree")
	}
	if v.Proves(elsewhere, request, proof) ||
		bytes.Equal(again, must(Binding(elsewhere, request))) {
		t.Error("it is taken on another connection")
	}
	if v.Proves(here, another, proof) || bytes.Equal(again, must(Binding(here, another))) {
		t.Error("it is taken for another request")
	}
	if v.Proves(here, request, ed25519.Sign(token.key(), again)) {
		t.Error("what is signed to join again is taken as a proof of the token")
	}
}

// TestToken: a token is read as it was printed, and a typing error is found.
func TestToken(t *testing.T) {
	want := NewToken(Fingerprint{1, 2, 3})
	locked := want
	locked.Keys[31] = 4
	for _, want := range []Token{want, locked} {
		got, err := ParseToken(want.String())
		if err != nil || got != want {
			t.Errorf("%v became %v, %v", want, got, err)
		}
	}
	for _, bad := range []string{"", "weir1.", want.String() + "A", want.String()[1:],
		want.String()[:len(want.String())-1],
		locked.String()[:len(locked.String())-2], strings.Replace(want.String(), ".", ".+", 1)} {
		if _, err := ParseToken(bad); err == nil {
			t.Errorf("%q is a token", bad)
		}
	}
}

// TestFiles: credentials and CAs are read as they were written; a key of another one is refused.
func TestFiles(t *testing.T) {
	ca := newCA(t)
	file, err := ca.MarshalPEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCA(file)
	if err != nil || !bytes.Equal(again.Certificate(), ca.Certificate()) {
		t.Fatalf("the CA: %v", err)
	}
	own := issue(t, again, Host)
	if file, err = own.MarshalPEM(); err != nil {
		t.Fatal(err)
	}
	got, err := ParseCredential(file)
	if err != nil || !bytes.Equal(got.Certificate, own.Certificate) || !got.Key.Equal(own.Key) {
		t.Fatalf("the credential: %v", err)
	}
	if p, err := got.Verify(); err != nil || p.ID != (ID{Host, "a"}) {
		t.Errorf("verified: %v, %v", p, err)
	}
	stolen := *own
	stolen.Key = issue(t, ca, Host).Key
	if file, err = stolen.MarshalPEM(); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCredential(file); err == nil {
		t.Error("a certificate with the key of another one is read")
	}
	for _, bad := range []string{"", "x", string(file[:len(file)/2])} {
		if _, err := ParseCredential([]byte(bad)); err == nil {
			t.Errorf("%.20q is a credential", bad)
		}
		if _, err := ParseCA([]byte(bad)); err == nil {
			t.Errorf("%.20q is a CA", bad)
		}
	}
}

// TestIDs: a name is one key of the store, and has one kind.
func TestIDs(t *testing.T) {
	for _, good := range []string{"host:a", "admin:b.c", "feed:x-1", "store:s"} {
		if id, err := ParseID(good); err != nil || id.String() != good {
			t.Errorf("%s: %v, %v", good, id, err)
		}
	}
	for _, bad := range []string{"", "host", "host:", "root:a", "host:a/b", "host:a:b",
		"host:" + strings.Repeat("a", 64)} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("%q is an ID", bad)
		}
		if id, ok := strings.CutPrefix(bad, "host:"); ok {
			if _, err := newCA(t).Issue(ID{Host, id}, make(ed25519.PublicKey,
				ed25519.PublicKeySize), NewSerial()); err == nil {
				t.Errorf("a certificate for %q", bad)
			}
		}
	}
}

// TestAnyClock: certificates verify by whatever a clock shows, as members of an embedded etcd do
// it. A board without a clock begins in 1970, and one whose battery is dead anywhere.
func TestAnyClock(t *testing.T) {
	ca := newCA(t)
	c, err := Issue(ca, ID{Kind: Store, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(c.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(ca.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(1, 0), time.Now(),
		time.Unix(1<<31, 0), time.Unix(1<<32, 0),
		time.Unix(0, math.MaxInt64)} { // the end of a clock in nanoseconds: 2262
		if _, err := own.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("at %v: %v", at, err)
		}
	}
}
