package test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongDamagedRecordKeepsLabels: a pod whose record is damaged keeps the labels that the kernel
// knows, those that refuse it as well as those that let it pass, and gets no others. Where the
// kernel knows none any more, the status says that they are lost.
func TestLongDamagedRecordKeepsLabels(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	h := newPodHost(t, "add check-state\nadd deny tcp from table(role=suspect) to any\n"+
		"add allow tcp from table(role=client) to table(app=web) 80 setup keep-state\n"+
		"add allow tcp from any to table(app=web) 81 setup keep-state\n")
	web, webPod := h.attach("web", "--label", "app=web")
	nginx(t, web, 80, 81)
	client, _ := h.attach("client", "--label", "role=client")
	suspect, _ := h.attach("suspect", "--label", "role=suspect")
	plain, _ := h.attach("plain")
	url := func(port uint16) string {
		return "http://" + netip.AddrPortFrom(webPod.Addrs[0], port).String() + "/"
	}
	checkVerdicts := func(when string) {
		t.Helper()
		t.Log(when)
		reach(t, client, url(80))
		refuse(t, plain, url(80))
		refuse(t, suspect, url(80))
		refuse(t, suspect, url(81))
	}
	checkVerdicts("before")
	damage := func() {
		t.Helper()
		h.kill()
		records, err := filepath.Glob(filepath.Join(h.root, "var/lib/weir/pods/*.json"))
		if err != nil || len(records) != 4 {
			t.Fatalf("records: %v, %v", records, err)
		}
		for _, r := range records {
			if err := os.WriteFile(r, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	damage()
	h.start()
	checkVerdicts("with damaged records")
	if reported := problems(t, h.agentNode); strings.Count(reported,
		"keeps its name and labels") != 4 {
		t.Errorf("the problems are %s", reported)
	}
	h.kill()
	h.start()
	checkVerdicts("after another start")

	// The pins are gone too: the labels are lost.
	damage()
	if err := errors.Join(os.RemoveAll(h.bpffs), os.MkdirAll(h.bpffs, 0o755)); err != nil {
		t.Fatal(err)
	}
	h.start()
	refuse(t, client, url(80))
	refuse(t, plain, url(80))
	if reported := problems(t, h.agentNode); strings.Count(reported,
		"runs on without its labels") != 4 {
		t.Errorf("the problems are %s", reported)
	}
}
