package dns

import (
	"io"
	"slices"
	"strings"
)

// source is a place where names are looked up.
type source uint8

const (
	fromFiles  source = iota // the hosts file
	fromDNS                  // the servers of resolv.conf
	fromSystem               // the C library with its configuration
)

var defaultOrder = []source{fromFiles, fromDNS}

// parseNsswitch reads the hosts line. An action such as [NOTFOUND=return] ends the list: after a
// source without the name, nothing that follows is used.
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
	spaced := strings.NewReplacer("[", " [ ", "]", " ] ").Replace(strings.ToLower(line))
	for word := range strings.FieldsSeq(spaced) {
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
		case word == "dns":
			add(fromDNS)
		case word == "resolve":
			// systemd-resolved answers from the hosts file first. Where it does not run, which its
			// line allows for ([!UNAVAIL=return] files), the file is next.
			add(fromFiles)
			add(fromDNS)
		case word == "myhostname", word == "mymachines", strings.HasPrefix(word, "mdns"):
			// These and their actions concern local names only: see orderFor.
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

// orderFor returns the sources for one name. If the host uses multicast DNS, names in .local are
// looked up by it, and only the modules of the C library implement it.
func (s *system) orderFor(name string) []source {
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		if slices.Contains(s.order, fromDNS) {
			return localOrder // no server is asked, wherever dns is listed (RFC 6761 section 6.3)
		}
		return s.order
	}
	if s.mdns && (name == "local" || strings.HasSuffix(name, ".local")) {
		return mdnsOrder
	}
	if s.myhostname && name == s.hostname {
		return mdnsOrder
	}
	return s.order
}

var (
	localOrder = []source{fromFiles}
	mdnsOrder  = []source{fromFiles, fromSystem}
)
