package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// chromium is a real browser without a window, driven by the DevTools protocol over two pipes.
type chromium struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	id      int
	session string
	errors  []string // what the page's console complained about
}

// newChromium starts a browser with one empty page. It ends with the test.
func newChromium(t *testing.T) *chromium {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatal("NOT TESTED: chromium is missing, and WEIR_CI=1 forbids to skip")
		}
		t.Skip("NOT TESTED: chromium is missing")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile := t.TempDir()
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--no-proxy-server", "--remote-debugging-pipe",
		"--user-data-dir="+filepath.Join(profile, "profile"), "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+profile)
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	t.Cleanup(func() {
		// the group that we made: the browser and its helpers
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		in.Close()
		out.Close()
		// the profile is removed after this, and helpers that are dying still write to it
		for range 1500 {
			if errors.Is(syscall.Kill(-cmd.Process.Pid, 0), syscall.ESRCH) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	out.SetReadDeadline(time.Now().Add(5 * time.Minute))
	c := &chromium{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	var target struct{ TargetID string }
	c.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true},
		&session)
	c.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

// message is anything that comes from the browser.
type message struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// call asks the browser and waits for the answer.
func (c *chromium) call(method string, params map[string]any, result any) {
	c.t.Helper()
	c.id++
	text, err := json.Marshal(map[string]any{"id": c.id, "method": method, "params": params,
		"sessionId": c.session})
	if c.session == "" {
		text, err = json.Marshal(map[string]any{"id": c.id, "method": method, "params": params})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.in.Write(append(text, 0)); err != nil {
		c.t.Fatal(err)
	}
	for {
		text, err := c.out.ReadBytes(0)
		if err != nil {
			c.t.Fatalf("%s: the browser is silent: %v", method, err)
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			c.t.Fatal(err)
		}
		switch {
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
			c.errors = append(c.errors, string(m.Params))
		case m.ID != c.id:
		case m.Error != nil:
			c.t.Fatalf("%s: %s", method, m.Error.Message)
		default:
			if result != nil {
				if err := json.Unmarshal(m.Result, result); err != nil {
					c.t.Fatal(err)
				}
			}
			return
		}
	}
}

// eval runs a script in the page and returns its value as text.
func (c *chromium) eval(script string) string {
	c.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	c.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true,
		"awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s", script, r.ExceptionDetails.Exception.Description)
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits until a script gives a text.
func (c *chromium) until(script, want string) {
	c.t.Helper()
	got := ""
	end := time.Now().Add(60 * time.Second)
	for ; time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		if got = c.eval(script); got == want {
			return
		}
	}
	c.t.Fatalf("%s is %q, want %q; the page says %s; the console: %s", script, got, want,
		c.eval("document.body.innerText"), strings.Join(c.errors, "\n"))
}

func (c *chromium) open(url string) {
	c.t.Helper()
	c.call("Page.navigate", map[string]any{"url": url}, nil)
}

// press sends keys to whatever has the focus.
func (c *chromium) press(keys string) {
	c.t.Helper()
	for _, k := range keys {
		key := map[string]any{"type": "keyDown", "key": string(k), "text": string(k)}
		if k == '\n' {
			key = map[string]any{"type": "keyDown", "key": "Enter", "text": "\r",
				"windowsVirtualKeyCode": 13}
		}
		c.call("Input.dispatchKeyEvent", key, nil)
		key["type"] = "keyUp"
		delete(key, "text")
		c.call("Input.dispatchKeyEvent", key, nil)
	}
}

// click clicks into the middle of an element, as a person would.
func (c *chromium) click(id string) {
	c.t.Helper()
	var at [2]float64
	text := c.eval(fmt.Sprintf("(() => { const e = document.getElementById(%q); "+
		"e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return "+
		"JSON.stringify([r.x + r.width/2, r.y + r.height/2]) })()", id))
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		c.t.Fatal(err)
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		c.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1],
			"button": "left", "clickCount": 1}, nil)
	}
}

// screenshot returns what the page looks like, as PNG.
func (c *chromium) screenshot() []byte {
	c.t.Helper()
	var r struct{ Data string }
	c.call("Page.captureScreenshot", map[string]any{"format": "png"}, &r)
	picture, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		c.t.Fatal(err)
	}
	return picture
}
