package device_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "copy the files again")

const library = "github.com/tailscale/wireguard-go"

// own are the files of this directory that are not copies.
var own = map[string]bool{"ranges.go": true, "session.go": true}

// instead are packages of the library in whose place the copy has our own.
var instead = map[string]string{
	library + "/tai64n": "github.com/weirnet/weir/overlay/internal/tai64n",
}

// edit is a change of the library's text.
type edit struct{ theirs, ours string }

// edits are the changes of files.
//
// Several goroutines handle handshake messages. Each looks whether a message is new and computes
// for a while, and then changes the state of the handshake. Of two copies of a message both are
// new. Two copies of a response then make two sessions with the same keys and counters, and two of
// an initiation leave the ends with different keys. So each looks again when it holds the lock.
//
// The library tells no endpoint that a handshake message from it is authentic, or was dropped.
//
// A handshake message that waits keeps all of the memory that it was read into: a thousand, which
// any host can send, keep 128 MiB. So each is copied.
//
// Each IPv6 address has handshakes of its own, and a host as many addresses as it likes.
var edits = map[string][]edit{
	"noise-protocol.go": {
		{`	handshake.mutex.Lock()

	handshake.hash = hash
	handshake.chainKey = chainKey
	handshake.remoteIndex = msg.Sender
	handshake.remoteEphemeral`, `	handshake.mutex.Lock()
	if !timestamp.After(handshake.lastTimestamp) { // another worker took a copy meanwhile
		handshake.mutex.Unlock()
		return nil
	}

	handshake.hash = hash
	handshake.chainKey = chainKey
	handshake.remoteIndex = msg.Sender
	handshake.remoteEphemeral`},
		{`	handshake.mutex.Lock()

	handshake.hash = hash
	handshake.chainKey = chainKey
	handshake.remoteIndex = msg.Sender
	handshake.state =`, `	handshake.mutex.Lock()
	if handshake.state != handshakeInitiationCreated || handshake.localIndex != msg.Receiver {
		handshake.mutex.Unlock() // another worker took a copy meanwhile
		return nil
	}

	handshake.hash = hash
	handshake.chainKey = chainKey
	handshake.remoteIndex = msg.Sender
	handshake.state =`},
	},
	"receive.go": {
		{`			buf.incRef()
			select {
			case device.queue.handshake.c <- QueueHandshakeElement{
				msgType:    msgType,
				buffer:     buf,
				packet:     packet,
				packetMeta: meta,
			}:
				bufDirty = true
			default:
				buf.decRef()
			}
`, `			small := device.getSmallPacketBuf()
			select {
			case device.queue.handshake.c <- QueueHandshakeElement{
				msgType:    msgType,
				buffer:     small,
				packet:     small.slab[:copy(small.slab, packet)],
				packetMeta: meta,
			}:
			default:
				small.decRef()
				dropped(meta.Endpoint)
			}
`},
		{`!device.rate.limiter.Allow(elem.packetMeta.Endpoint.DstIP())`,
			`!device.mayHandshake(elem.packetMeta.Endpoint.DstIP())`},
		{`			peer.SendHandshakeResponse()
`, `			peer.initiated(elem.packetMeta.Endpoint)
			peer.SendHandshakeResponse()
`},
		{`			device.log.Verbosef("%v - Received handshake response", peer)
`, `			device.log.Verbosef("%v - Received handshake response", peer)
			peer.responded(elem.packetMeta.Endpoint, msg.Receiver)
`},
	},
}

// edited returns the library's text of a file with our changes.
func edited(t *testing.T, name string, text []byte) []byte {
	t.Helper()
	for theirs, ours := range instead {
		text = bytes.ReplaceAll(text, []byte(`"`+theirs+`"`), []byte(`"`+ours+`"`))
	}
	for _, e := range edits[name] {
		if n := bytes.Count(text, []byte(e.theirs)); n != 1 {
			t.Fatalf("%s has the lines of a change %d times, want once:\n%s", name, n, e.theirs)
		}
		text = bytes.Replace(text, []byte(e.theirs), []byte(e.ours), 1)
	}
	return text
}

// TestCopy: every file but our own is that of the library's version in go.mod, to the byte but for
// the listed changes, below a line that says so. After a change of that version, `go test
// ./overlay/internal/device -update` copies the new files and changes them.
func TestCopy(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", library).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	want := map[string][]byte{}
	files, err := filepath.Glob(filepath.Join(dir, "device", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			head := fmt.Sprintf("// Code generated from %s/device %s. DO NOT EDIT.\n\n", library,
				version)
			name := filepath.Base(f)
			want[name] = append([]byte(head), edited(t, name, read(t, f))...)
		}
	}
	want["LICENSE"] = read(t, filepath.Join(dir, "LICENSE"))
	for name, text := range want {
		if own[name] {
			t.Errorf("the library has a file %s, too", name)
		} else if *update {
			if err := os.WriteFile(name, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	here, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(here, "LICENSE") {
		text, theirs := want[name]
		delete(want, name)
		switch {
		case own[name] || strings.HasSuffix(name, "_test.go"):
		case !theirs && *update:
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		case !theirs:
			t.Errorf("the library has no file %s", name)
		case !bytes.Equal(read(t, name), text):
			t.Errorf("%s is not the library's with our changes", name)
		}
	}
	for name := range want {
		t.Errorf("%s is missing", name)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
