package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"sync"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/pod"
)

// networksVersion is that of the record's layout.
const networksVersion = 1

// networks are the networks of Docker whose options give all their containers labels. dockerd says
// the options once, when it makes the network, so a file keeps them. It is read each time: there
// are few networks, and a container starts seldom.
type networks struct {
	file string

	mu sync.Mutex // held while the file changes
}

// networksRecord is what the file holds.
type networksRecord struct {
	Version int                          `json:"version"`
	Labels  map[string]map[string]string `json:"labels"` // by Docker's network id
}

// read returns the record; without a file it is empty.
func (n *networks) read() (r networksRecord, err error) {
	text, err := os.ReadFile(n.file)
	if errors.Is(err, fs.ErrNotExist) {
		r.Labels = map[string]map[string]string{}
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.Version != networksVersion || r.Labels == nil) {
		err = fmt.Errorf("version %d is not known", r.Version)
	}
	if err != nil {
		return r, fmt.Errorf("%s does not say which labels the networks have: %w; remove it, and "+
			"create the networks with labels again", n.file, err)
	}
	return r, nil
}

// labels returns those that a network gives its containers.
func (n *networks) labels(id string) (map[string]string, error) {
	r, err := n.read()
	return maps.Clone(r.Labels[id]), err
}

// set replaces the labels of a network; nil forgets it.
func (n *networks) set(id string, labels map[string]string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, err := n.read()
	if err != nil {
		return err
	}
	if maps.Equal(r.Labels[id], labels) {
		return nil
	}
	r.Version, r.Labels[id] = networksVersion, labels
	if len(labels) == 0 {
		delete(r.Labels, id)
	}
	if len(r.Labels) == 0 {
		return atomicfile.Remove(n.file)
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.Write(n.file, append(text, '\n'))
}

// networkLabels returns the labels in the options of a network, -o weir.label.KEY=VALUE.
func networkLabels(options map[string]json.RawMessage) (map[string]string, error) {
	var generic map[string]any
	if raw := options["com.docker.network.generic"]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &generic); err != nil {
			return nil, fmt.Errorf("options: %w", err)
		}
	}
	labels := map[string]string{}
	for key, value := range generic {
		if !strings.HasPrefix(key, "weir.") {
			continue
		}
		label, isLabel := strings.CutPrefix(key, "weir.label.")
		text, isText := value.(string)
		if !isLabel || !isText {
			return nil, fmt.Errorf("option %s=%v is unknown; a network has weir.label.KEY=VALUE",
				key, value)
		}
		labels[label] = text
	}
	if err := pod.CheckLabels(labels); err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return labels, nil
}
