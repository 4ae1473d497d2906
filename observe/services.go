package observe

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/weirnet/weir/packet"
)

// Services are the names of ports.
type Services map[servicePort]string

type servicePort struct {
	proto packet.Proto
	port  uint16
}

// ReadServices reads a file like /etc/services. Of several names of a port, the first is used.
func ReadServices(r io.Reader) (Services, error) {
	s := Services{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		f := strings.Fields(text)
		if len(f) < 2 {
			continue
		}
		number, word, _ := strings.Cut(f[1], "/")
		port, err := strconv.ParseUint(number, 10, 16)
		proto, known := packet.ProtoNumber(word)
		if err != nil || !known {
			continue
		}
		if k := (servicePort{proto, uint16(port)}); s[k] == "" {
			s[k] = f[0]
		}
	}
	return s, lines.Err()
}

// Name returns the name of a port, "" if it has none.
func (s Services) Name(proto packet.Proto, port uint16) string {
	switch proto {
	case packet.ProtoTCP, packet.ProtoUDP, packet.ProtoSCTP:
		return s[servicePort{proto, port}]
	}
	return ""
}
