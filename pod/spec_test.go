package pod

import (
	"encoding/json"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// whole is a pod with every field of its request and of its record.
func whole() *Pod {
	return &Pod{Spec: Spec{Network: "net", Container: "c1", Name: "web", Netns: "/run/netns/c1",
		IfName: "eth1", Addrs: []netip.Addr{netip.MustParseAddr("10.88.0.9")}, ExternalIPAM: true,
		Routes:                []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		NextHops:              []netip.Addr{netip.MustParseAddr("10.88.0.1")},
		Fixed:                 []string{"app"},
		Aliases:               []string{"shop"},
		OnlyAddrs:             true,
		RuntimeMovesInterface: true, MAC: MAC{2, 0, 0, 0, 0, 9}, MTU: 1400,
		Labels: map[string]string{"app": "web"},
		Publish: []Publish{{Proto: 17, Host: netip.MustParseAddr("192.0.2.1"), HostPort: 53,
			Port: 5353}, {Proto: 6, HostPort: 80, Port: 8080}},
		Rates: forward.Rates{In: 1, Out: 2, InBurst: 3, OutBurst: 4}},
		Key: "c1/eth1", HostIf: hostIf("c1/eth1"), Index: 7,
		HostMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Gateway: []netip.Addr{netip.MustParseAddr("10.88.0.1")},
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0,
			time.UTC), Ready: true, NetnsID: "4:5", Table: 100, Link: LinkNetkit}
}

// TestSpecOnTheWire: a request has the form that the API has had since version 0.1.0.
func TestSpecOnTheWire(t *testing.T) {
	const text = `{"network":"net","container":"c1","name":"web","netns":"/run/netns/c1",` +
		`"ifname":"eth1","addrs":["10.88.0.9"],"only_addrs":true,"external_ipam":true,` +
		`"routes":["10.0.0.0/8"],"next_hops":["10.88.0.1"],` +
		`"runtime_moves_interface":true,` +
		`"mac":"02:00:00:00:00:09","mtu":1400,"labels":{"app":"web"},"fixed":["app"],` +
		`"aliases":["shop"],"publish":[` +
		`{"proto":"udp","host":"192.0.2.1","host_port":53,"port":5353},` +
		`{"proto":"tcp","host_port":80,"port":8080}],` +
		`"rates":{"in":1,"out":2,"in_burst":3,"out_burst":4}}`
	want := whole().Spec
	got, err := json.Marshal(want)
	if err != nil || string(got) != text {
		t.Errorf("%v\n got %s\nwant %s", err, got, text)
	}
	var back Spec
	if err := json.Unmarshal([]byte(text), &back); err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, back, want)
	}
	for _, bad := range []string{`{"mac":"x"}`, `{"publish":[{"proto":"x"}]}`,
		`{"publish":[{"host_port":65536}]}`} {
		if err := json.Unmarshal([]byte(bad), new(Spec)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestOnlySomeProtocolsArePublished: ports of others have no meaning.
func TestOnlySomeProtocolsArePublished(t *testing.T) {
	for proto, want := range map[uint8]bool{6: true, 17: true, 132: true, 1: false, 47: false} {
		s := whole().Spec
		s.Publish[0].Proto = packet.Proto(proto)
		if err := s.check(); (err == nil) != want {
			t.Errorf("protocol %d: %v", proto, err)
		}
	}
}

// TestRecordKeepsEverything: no field of a pod is lost in its record, whose names are those of
// version 1.
func TestRecordKeepsEverything(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := whole()
	for v := reflect.ValueOf(*want); ; {
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && v.Field(i).IsZero() {
				t.Errorf("the test leaves %s out", f.Name)
			}
		}
		if v = v.FieldByName("Spec"); !v.IsValid() {
			break
		}
	}
	if err := s.save(want); err != nil {
		t.Fatal(err)
	}
	pods, damaged, err := s.load()
	if err != nil || len(damaged) > 0 || len(pods) != 1 || !reflect.DeepEqual(pods[0], want) {
		t.Errorf("%v, %v\n got %+v\nwant %+v", err, damaged, pods, want)
	}
	const text = `{"Version":1,"Network":"net","Container":"c1","Name":"web",` +
		`"Netns":"/run/netns/c1","IfName":"eth1","Addrs":["10.88.0.9"],"MAC":"AgAAAAAJ",` +
		`"MTU":1400,"Labels":{"app":"web"},"Publish":[{"Proto":17,"Host":"192.0.2.1",` +
		`"HostPort":53,"Port":5353},{"Proto":6,"Host":"","HostPort":80,"Port":8080}],` +
		`"Rates":{"In":1,"Out":2,"InBurst":3,"OutBurst":4},"Moved":true,"Extern":true,` +
		`"Key":"c1/eth1","HostIf":"` // and so on
	if got, err := json.Marshal(recordOf(want)); err != nil || len(got) < len(text) ||
		string(got[:len(text)]) != text {
		t.Errorf("%v\n got %s\nwant %s...", err, got, text)
	}
}
