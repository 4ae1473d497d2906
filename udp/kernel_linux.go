package udp

import (
	"sync"

	"golang.org/x/sys/unix"
)

// release is a kernel version: major, minor, patch.
type release [3]int

func (a release) less(b release) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// parseRelease reads the numbers at the front of uname's release, such as "6.1.0-18-amd64";
// missing ones are 0.
func parseRelease(s string) (r release) {
	i := 0
	for field := range r {
		digits := false
		for ; i < len(s) && s[i] >= '0' && s[i] <= '9' && r[field] < 1e6; i++ {
			r[field] = r[field]*10 + int(s[i]-'0')
			digits = true
		}
		if !digits || i == len(s) || s[i] != '.' {
			break
		}
		i++
	}
	return r
}

var kernel = sync.OnceValue(func() release {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return release{}
	}
	return parseRelease(unix.ByteSliceToString(u.Release[:]))
})

// gsoBugs are kernels that cannot send GSO packets correctly although they offer the option.
var gsoBugs = []struct {
	from, before release
	why          string
}{
	{release{}, release{5, 0, 0}, "kernels before 5.0 fail on some network cards"},
	{release{7, 0, 0}, release{7, 1, 5},
		"kernels 7.0 to 7.1.4 corrupt GSO packets whose last datagram is as long as the others"},
}

// gsoBug returns why kernel k must not send GSO packets; empty when it may.
func gsoBug(k release) string {
	for _, b := range gsoBugs {
		if !k.less(b.from) && k.less(b.before) {
			return b.why
		}
	}
	return ""
}

// maxSegments is how many datagrams a GSO packet may have: UDP_MAX_SEGMENTS was 64 before 6.9 and
// is 128 since. The result is one less, because old kernels counted the header's bytes and refused
// 64 small datagrams.
func maxSegments(k release) int {
	if k.less(release{6, 9, 0}) {
		return 63
	}
	return 127
}
