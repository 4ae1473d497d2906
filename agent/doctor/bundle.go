package doctor

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strings"
	"time"
)

// File is one part of a bundle. A part that could not be read has the error as its text.
type File struct {
	Name string
	Text []byte
}

// WriteBundle writes everything that a bug report needs as a gzipped tar, secrets masked, and
// addresses too if asked for.
func WriteBundle(w io.Writer, files []File, maskAddresses bool, now time.Time) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	m := masker{known: map[netip.Addr]string{}}
	for _, f := range files {
		text := maskSecrets(f.Text)
		if maskAddresses {
			text = m.addresses(text)
		}
		h := &tar.Header{Name: "weir-bundle/" + f.Name, Mode: 0o600, Size: int64(len(text)),
			ModTime: now}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("bundle: %s: %w", f.Name, err)
		}
		if _, err := t.Write(text); err != nil {
			return fmt.Errorf("bundle: %s: %w", f.Name, err)
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}

// secret finds the value of a setting whose name suggests a secret, in TOML and in JSON, and
// anything that looks like a WireGuard key.
var (
	secret  = regexp.MustCompile(`(?i)("?[a-z0-9_.-]*(?:secret|token|passw(?:or)?d|private|psk|key)[a-z0-9_.-]*"?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|'[^'\n]*'|[^\s",}]+)`)
	wireKey = regexp.MustCompile(`\b[A-Za-z0-9+/]{43}=`)
)

func maskSecrets(text []byte) []byte {
	text = secret.ReplaceAll(text, []byte(`$1"MASKED"`))
	return wireKey.ReplaceAll(text, []byte("MASKED"))
}

// masker gives each address a name, the same wherever it stands, so that a masked bundle can still
// be followed.
type masker struct{ known map[netip.Addr]string }

// candidate finds what may be an address. Word characters around it are part of the match, so that
// a piece of a longer word does not match.
var candidate = regexp.MustCompile(`[0-9A-Za-z_.:%]*[0-9A-Fa-f]*[.:][0-9A-Za-z_.:%]*`)

func (m *masker) addresses(text []byte) []byte {
	return candidate.ReplaceAllFunc(text, func(word []byte) []byte {
		whole := trimDots(string(word))
		for _, split := range []int{len(whole), strings.LastIndexByte(whole, ':')} {
			if split <= 0 {
				continue
			}
			a, err := netip.ParseAddr(whole[:split])
			if err != nil || a.IsUnspecified() || a.IsLoopback() {
				continue
			}
			return append([]byte(m.name(a)), word[split:]...)
		}
		return word
	})
}

// trimDots leaves out the full stop of a sentence or the colon of a label.
func trimDots(s string) string {
	for len(s) > 0 && (s[len(s)-1] == '.' || s[len(s)-1] == ':' &&
		(len(s) < 2 || s[len(s)-2] != ':')) {
		s = s[:len(s)-1]
	}
	return s
}

func (m *masker) name(a netip.Addr) string {
	if _, ok := m.known[a]; !ok {
		family := "v4"
		if a.Is6() {
			family = "v6"
		}
		m.known[a] = fmt.Sprintf("ip%s-%d", family, len(m.known)+1)
	}
	return m.known[a]
}
