package observe

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/packet"
)

func TestServices(t *testing.T) {
	s, err := ReadServices(strings.NewReader("# names\nhttp\t80/tcp www # the web\n" +
		"www-again 80/tcp\ndomain 53/udp\nbad x/tcp\nworse 1/what\nalone\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		proto packet.Proto
		port  uint16
		want  string
	}{{6, 80, "http"}, {17, 53, "domain"}, {17, 80, ""}, {6, 53, ""}, {6, 1, ""}, {1, 80, ""}} {
		if got := s.Name(c.proto, c.port); got != c.want {
			t.Errorf("port %d of %d is %q, want %q", c.port, c.proto, got, c.want)
		}
	}
	if Services(nil).Name(6, 80) != "" {
		t.Error("no services have a name")
	}
}
