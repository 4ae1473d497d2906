package svcb

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func resource(params ...dnsmessage.SVCParam) *dnsmessage.SVCBResource {
	return &dnsmessage.SVCBResource{Priority: 1, Target: dnsmessage.MustNewName("Svc.Example."),
		Params: params}
}

func param(key dnsmessage.SVCParamKey, value string) dnsmessage.SVCParam {
	return dnsmessage.SVCParam{Key: key, Value: []byte(value)}
}

func TestFromResource(t *testing.T) {
	r, err := FromResource(resource(
		param(dnsmessage.SVCParamMandatory, "\x00\x01\x00\x04"),
		param(dnsmessage.SVCParamALPN, "\x02h2\x02h3"),
		param(dnsmessage.SVCParamNoDefaultALPN, ""),
		param(dnsmessage.SVCParamPort, "\x20\xfb"),
		param(dnsmessage.SVCParamIPv4Hint, "\xc0\x00\x02\x01\xc0\x00\x02\x02"),
		param(dnsmessage.SVCParamECH, "ech"),
		param(dnsmessage.SVCParamIPv6Hint,
			"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"),
		param(65280, "private"),
	))
	if err != nil {
		t.Fatal(err)
	}
	if r.Target != "svc.example" || r.Port != 8443 || !slices.Equal(r.ALPN, []string{"h2", "h3"}) ||
		!r.NoDefaultALPN || string(r.ECH) != "ech" {
		t.Errorf("got %+v", r)
	}
	if len(r.Hints4) != 2 || r.Hints4[1] != netip.MustParseAddr("192.0.2.2") ||
		len(r.Hints6) != 1 || r.Hints6[0] != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("hints %v %v", r.Hints4, r.Hints6)
	}
	alias, err := FromResource(&dnsmessage.SVCBResource{Target: dnsmessage.MustNewName("."),
		Params: []dnsmessage.SVCParam{param(dnsmessage.SVCParamPort, "x")}})
	if err != nil || !alias.Alias() || alias.Target != "" {
		t.Errorf("alias %+v %v", alias, err)
	}
}

// TestHintsAreBounded: a record cannot make a dialer order and try thousands of addresses.
func TestHintsAreBounded(t *testing.T) {
	value := make([]byte, 65532) // 16,383 IPv4 addresses
	r, err := FromResource(resource(param(dnsmessage.SVCParamIPv4Hint, string(value)),
		param(dnsmessage.SVCParamIPv6Hint, string(value[:65520]))))
	if err != nil || len(r.Hints4) != maxHints || len(r.Hints6) != maxHints {
		t.Errorf("%d and %d hints: %v", len(r.Hints4), len(r.Hints6), err)
	}
}

func TestRefusesMalformed(t *testing.T) {
	for name, params := range map[string][]dnsmessage.SVCParam{
		"empty alpn":          {param(dnsmessage.SVCParamALPN, "")},
		"alpn too long":       {param(dnsmessage.SVCParamALPN, "\x09h2")},
		"alpn of length zero": {param(dnsmessage.SVCParamALPN, "\x00")},
		"default alpn alone":  {param(dnsmessage.SVCParamNoDefaultALPN, "")},
		"default alpn and value": {param(dnsmessage.SVCParamALPN, "\x02h2"),
			param(dnsmessage.SVCParamNoDefaultALPN, "x")},
		"port":    {param(dnsmessage.SVCParamPort, "\x01")},
		"hint":    {param(dnsmessage.SVCParamIPv4Hint, "\x01\x02\x03")},
		"no hint": {param(dnsmessage.SVCParamIPv6Hint, "")},
		"order": {param(dnsmessage.SVCParamPort, "\x01\xbb"),
			param(dnsmessage.SVCParamALPN, "\x02h2")},
		"twice": {param(dnsmessage.SVCParamPort, "\x01\xbb"),
			param(dnsmessage.SVCParamPort, "\x01\xbb")},
		"mandatory missing": {param(dnsmessage.SVCParamMandatory, "\x00\x03")},
		"mandatory itself":  {param(dnsmessage.SVCParamMandatory, "\x00\x00")},
		"mandatory odd":     {param(dnsmessage.SVCParamMandatory, "\x00")},
	} {
		if r, err := FromResource(resource(params...)); err == nil || errors.Is(err, ErrMandatory) {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
	for list, key := range map[string]dnsmessage.SVCParamKey{"\xff\x00": 65280,
		"\x00\x05": dnsmessage.SVCParamECH} {
		_, err := FromResource(resource(param(dnsmessage.SVCParamMandatory, list),
			param(key, "x")))
		if !errors.Is(err, ErrMandatory) {
			t.Errorf("unsupported mandatory parameter %v: %v", key, err)
		}
	}
}

func TestSpeaks(t *testing.T) {
	for _, tt := range []struct {
		r    Record
		ours []string
		want bool
	}{
		{Record{ALPN: []string{"h2"}}, []string{"h2"}, true},
		{Record{ALPN: []string{"h3"}}, []string{"h2"}, false},
		{Record{ALPN: []string{"h3"}}, []string{"h2", "http/1.1"}, true}, // by default
		{Record{ALPN: []string{"h3"}, NoDefaultALPN: true}, []string{"h2", "http/1.1"}, false},
		{Record{}, []string{"http/1.1"}, true},
		{Record{ALPN: []string{"h3"}, NoDefaultALPN: true}, nil, true},
	} {
		if got := tt.r.Speaks(tt.ours); got != tt.want {
			t.Errorf("%+v speaks %q: %v", tt.r, tt.ours, got)
		}
	}
}
