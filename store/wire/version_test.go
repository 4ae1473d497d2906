package wire

import "testing"

// TestOtherVersion: of a frame of another version of the protocol, each end says which one both
// have, and what to do.
func TestOtherVersion(t *testing.T) {
	old := func(frame []byte) []byte {
		body := append([]byte{}, frame[headerSize:]...)
		body[0] = Version - 1
		return body
	}
	_, hello := DecodeHello(old(Hello{Cluster: "c"}.Encode()))
	_, welcome := DecodeWelcome(old(Welcome{Cluster: "c", Epoch: 1}.Encode()))
	_, join := DecodeJoin(old(Join{Request: []byte("{}")}.Encode()))
	for want, err := range map[string]error{
		"this host has version 2 of the protocol, and weir-store version 3: ": hello,
		"weir-store has version 2 of the protocol, and this host version 3: ": welcome,
		"another version of the protocol: ":                                   join,
	} {
		if err == nil || err.Error() != want+"install the same Weir on all hosts" {
			t.Errorf("%v; want %s", err, want)
		}
	}
	if _, err := DecodeHello(Hello{Cluster: "c"}.Encode()[headerSize:]); err != nil {
		t.Errorf("this version: %v", err)
	}
}
