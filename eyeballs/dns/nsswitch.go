package dns

import (
	"io"
	"slices"
	"strings"
)

// source is where names are looked up.
type source uint8

const (
	fromFiles  source = iota // the hosts file
	fromDNS                  // the servers of resolv.conf
	fromSystem               // whatever the C library has configured
)

var defaultOrder = []source{fromFiles, fromDNS}

// parseNsswitch reads the hosts line. An action such as [NOTFOUND=return] ends
// the list, since nothing after it is asked once a source has said no.
func parseNsswitch(r io.Reader) []source {
	for text := range linesOf(r) {
		line, _, _ := strings.Cut(text, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "hosts:")
		if !ok {
			continue
		}
		return sources(rest)
	}
	return defaultOrder
}

func sources(line string) []source {
	var order []source
	add := func(s source) {
		if !slices.Contains(order, s) {
			order = append(order, s)
		}
	}
	inAction, skipped := false, false
	for _, word := range strings.Fields(strings.NewReplacer("[", " [ ", "]",
		" ] ").Replace(strings.ToLower(line))) {
		switch {
		case word == "[":
			inAction = true
		case word == "]":
			inAction = false
		case inAction && (word == "notfound=return" || word == "!success=return"):
			if !skipped && len(order) > 0 {
				return order
			}
		case inAction:
		case word == "files", word == "compat":
			add(fromFiles)
		case word == "dns", word == "resolve":
			// systemd-resolved's module asks the same stub that resolv.conf names.
			add(fromDNS)
		case word == "myhostname", word == "mymachines", strings.HasPrefix(word, "mdns"):
			// They speak for local names only, and so do their actions: see orderFor.
			skipped = true
			continue
		default:
			add(fromSystem)
		}
		if !inAction && word != "]" {
			skipped = false
		}
	}
	if len(order) == 0 {
		return defaultOrder
	}
	return order
}

// orderFor returns the sources for one name. Names in .local belong to multicast
// DNS where the host speaks it, and only the C library's modules do.
func (s *system) orderFor(name string) []source {
	if s.mdns && (name == "local" || strings.HasSuffix(name, ".local")) {
		return mdnsOrder
	}
	if s.myhostname && name == s.hostname {
		return mdnsOrder
	}
	return s.order
}

var mdnsOrder = []source{fromFiles, fromSystem}
