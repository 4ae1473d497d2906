package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestPodLabel: what the rules let in follows the labels of a running pod at once, over restarts of
// the agent too, and labels that the network's configuration sets stay.
func TestPodLabel(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	h := newPodHost(t, `
add check-state
add allow tcp from any to table(app=web) 80 setup keep-state
add allow tcp from any to table(app=api) 81 setup keep-state
`)
	web := h.lab.Node("web")
	config := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q,
		"labels":{"zone":"red"},"args":{"cni":{"labels":[{"key":"app","value":"web"}]}},
		"podLabels":["app"]}`, h.root)
	h.cni("ADD", "c1", web.Path(), config)
	nginx(t, web, 80, 81)
	pod := h.pod("c1")
	at := func(port int) string { return fmt.Sprintf("http://%s:%d/", pod.Addrs[0], port) }
	reach(t, h.outside, at(80))
	refuse(t, h.outside, at(81))

	if out := h.weir("pod", "label", "c1", "app=api", "tier=1"); out !=
		"c1 app=api,tier=1,zone=red\n" {
		t.Errorf("weir pod label printed %q", out)
	}
	reach(t, h.outside, at(81))
	refuse(t, h.outside, at(80))
	h.stop()
	refuse(t, h.outside, at(80))
	h.start("--rules", h.root+"/etc/weir/rules")
	reach(t, h.outside, at(81))
	refuse(t, h.outside, at(80))

	var changed api.Pods
	if err := json.Unmarshal([]byte(h.weir("pod", "label", "-j", "c1", "tier-", "none-")),
		&changed); err != nil || changed.Version == 0 || len(changed.Pods) != 1 ||
		!maps.Equal(changed.Pods[0].Labels, map[string]string{"app": "api", "zone": "red"}) {
		t.Errorf("%v, %+v", err, changed)
	}
	for words, want := range map[string]string{
		"c1 zone=green":  "the label zone=red is of the configuration of net",
		"c1 zone-":       "change it there",
		"none app=web":   "no such pod",
		"c1 app":         "is not KEY=VALUE to set it or KEY- to remove it",
		"c1 app=a app-":  "set and removed",
		"c1 app=a app=b": `set to "a" and to "b"`,
		"c1 app=a,b":     "only letters",
	} {
		_, refused, err := h.try(append([]string{"pod", "label"}, strings.Fields(words)...)...)
		if err == nil || !strings.Contains(refused, want) {
			t.Errorf("weir pod label %s: %v, %s", words, err, refused)
		}
	}
	if has := h.pod("c1").Labels["app"]; has != "api" {
		t.Errorf("after refusals the pod is app=%s", has)
	}
	// The runtime asks again, as it does after a failure: the pod stays as it is.
	h.cni("ADD", "c1", web.Path(), config)
	if has := h.pod("c1").Labels["app"]; has != "api" {
		t.Errorf("after another ADD the pod is app=%s", has)
	}
	other, _ := h.attach("other", "--label", "app=db")
	if _, refused, err := h.try("pod", "attach", "--name", "other", "--label", "app=web",
		other.Path()); err == nil || !strings.Contains(refused, "weir pod label other app=web") {
		t.Errorf("an attach that asks for another label: %v, %s", err, refused)
	}
	h.weir("pod", "detach", "c1")
	eventually(t, "the tables are empty", func() error {
		for _, table := range []string{"app=api", "app=web", "zone=red"} {
			// there may be none
			if out, _, _ := h.try("fw", "table", table, "list"); strings.Contains(out, "10.88.") {
				return fmt.Errorf("%s has %s", table, out)
			}
		}
		return nil
	})
}
