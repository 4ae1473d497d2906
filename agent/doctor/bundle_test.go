package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
	"time"
)

func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

func TestBundleMasks(t *testing.T) {
	text := `private_key = "abc def"
PSK = 'xyz'
{"token":"hunter2","port":80,"api_key": "a\"b"}
key YAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk= here
from 10.1.2.3:4000 to [fd00::12]:80, 10.1.2.3/8 and fe80::1. 14:03:11 version 1.2.3 at 127.0.0.1 ::1 0.0.0.0
listen tcp 10.1.2.3:9100: bind: address already in use
`
	var plain, masked bytes.Buffer
	for _, c := range []struct {
		to   *bytes.Buffer
		mask bool
	}{{&plain, false}, {&masked, true}} {
		if err := WriteBundle(c.to, []File{{"a.txt", []byte(text)}}, c.mask,
			time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	p, m := unpack(t, plain.Bytes())["weir-bundle/a.txt"],
		unpack(t, masked.Bytes())["weir-bundle/a.txt"]
	for _, bad := range []string{"abc", "xyz", "hunter2", `a\"b`, "YAnz5"} {
		if strings.Contains(p, bad) || strings.Contains(m, bad) {
			t.Errorf("%q is in the bundle", bad)
		}
	}
	if !strings.Contains(p,
		"from 10.1.2.3:4000 to [fd00::12]:80, 10.1.2.3/8 and fe80::1. 14:03:11") {
		t.Errorf("addresses are masked although that was not requested: %s", p)
	}
	want := "from ipv4-1:4000 to [ipv6-2]:80, ipv4-1/8 and ipv6-3. 14:03:11 version 1.2.3 at " +
		"127.0.0.1 ::1 0.0.0.0\nlisten tcp ipv4-1:9100: bind: address"
	if !strings.Contains(m, want) {
		t.Errorf("got %swant %s", m, want)
	}
}
