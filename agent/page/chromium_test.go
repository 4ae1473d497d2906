package page

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/profiler"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium is a real browser without a window.
type chromium struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string // guarded by mu; what the page's console complained about
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
	home := t.TempDir()
	start, stop := chromedp.NewExecAllocator(context.Background(),
		append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
			chromedp.NoSandbox, chromedp.UserDataDir(home+"/profile"), chromedp.Env("HOME="+home),
			chromedp.Flag("no-proxy-server", true), chromedp.WSURLReadTimeout(5*time.Minute))...)
	ctx, _ := chromedp.NewContext(start)
	c := &chromium{t: t}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithTimeout(ctx, 20*time.Minute)
	t.Cleanup(func() {
		cancel()
		chromedp.Cancel(ctx) // waits until the browser has ended
		stop()
	})
	err = chromedp.Listen(c.ctx, func(event any) { // starts it
		switch event.(type) {
		case *runtime.EventExceptionThrown, *log.EventEntryAdded:
			text, err := json.Marshal(event)
			c.mu.Lock()
			c.errors = append(c.errors, fmt.Sprint(string(text), err))
			c.mu.Unlock()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(c, profiler.Enable, cdp.Empty{})
	call(c, profiler.StartPreciseCoverage, profiler.StartPreciseCoverageParams{
		CallCount: new(true), Detailed: new(true)}) // before any script is compiled
	return c
}

// complaints is what the console has said.
func (c *chromium) complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errors
}

// run does something in the page.
func (c *chromium) run(actions ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	if err := chromedp.Do(c.ctx, actions...); err != nil {
		c.t.Fatal(err)
	}
}

// eval runs a script in the page and returns its value as text.
func (c *chromium) eval(script string) string {
	c.t.Helper()
	value, err := chromedp.Run(c.ctx, chromedp.Evaluate[any](script))
	if err != nil {
		c.t.Fatalf("%s: %v", script, err)
	}
	return fmt.Sprint(value)
}

// until waits until a script gives a text.
func (c *chromium) until(script, want string) {
	c.t.Helper()
	got := ""
	end := time.Now().Add(5 * time.Minute)
	for ; time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		if got = c.eval(script); got == want {
			return
		}
	}
	c.t.Fatalf("%s is %q, want %q; the page says %s; the console: %s", script, got, want,
		c.eval("document.body.innerText"), strings.Join(c.complaints(), "\n"))
}

// repeats runs f and returns how often that part of the page's scripts has run that ran most often
// meanwhile. Unlike a time it does not depend on the machine. It finds work that grows with the
// square of the rows.
func (c *chromium) repeats(f func()) int {
	c.t.Helper()
	call(c, profiler.TakePreciseCoverage, cdp.Empty{}) // begins again at 0
	f()
	most, where := int64(0), ""
	for _, script := range call(c, profiler.TakePreciseCoverage, cdp.Empty{}).Result {
		for _, function := range script.Functions {
			for _, part := range function.Ranges {
				if part.Count > most {
					most, where = part.Count, function.FunctionName
				}
			}
		}
	}
	c.t.Logf("a part of function %q ran %d times", where, most)
	return int(most)
}

// call sends a command of the protocol to the page.
func call[P, R any](c *chromium, command cdp.Command[P, R], params P) R {
	c.t.Helper()
	result, err := chromedp.Call(c.ctx, command, params)
	if err != nil {
		c.t.Fatal(err)
	}
	return result
}

// press sends keys to whatever has the focus. One event presses a key and types its character, so
// that a page can prevent the latter; chromedp.KeyEvent sends two.
func (c *chromium) press(keys string) {
	c.t.Helper()
	for _, k := range keys {
		key := input.DispatchKeyEventParams{Key: string(k), Text: string(k)}
		if k == '\r' {
			key.Key, key.WindowsVirtualKeyCode = "Enter", 13
		}
		for _, key.Type = range []input.DispatchKeyEventType{"keyDown", "keyUp"} {
			if _, err := chromedp.Call(c.ctx, input.DispatchKeyEvent, key); err != nil {
				c.t.Fatal(err)
			}
			key.Text = ""
		}
	}
}

// key presses a key that types nothing.
func (c *chromium) key(name string) {
	c.t.Helper()
	codes := map[string]int64{"Escape": 27, "Enter": 13, "ArrowUp": 38, "ArrowDown": 40}
	key := input.DispatchKeyEventParams{Key: name, Code: name, WindowsVirtualKeyCode: codes[name]}
	for _, key.Type = range []input.DispatchKeyEventType{"rawKeyDown", "keyUp"} {
		if _, err := chromedp.Call(c.ctx, input.DispatchKeyEvent, key); err != nil {
			c.t.Fatal(err)
		}
	}
}

// click clicks into the middle of an element, as a person would.
func (c *chromium) click(id string) {
	c.t.Helper()
	c.run(chromedp.Click(chromedp.CSS("#" + id)))
}

var update = flag.Bool("update", false, "write the screenshots of the documentation")

// maxPicture is how large a screenshot of the documentation may be.
const maxPicture = 100 << 10

// picture writes a screenshot of an element for the documentation, if that is asked for. One that
// is not there, or is too large, is a failure.
func (c *chromium) picture(name, selector string) {
	c.t.Helper()
	path := "../../docs/page/" + name + ".png"
	if *update {
		c.eval(fmt.Sprintf("document.querySelector(%q).scrollIntoView()", selector))
		raw, err := chromedp.Run(c.ctx, chromedp.Screenshot(chromedp.CSS(selector)))
		if err == nil {
			err = os.WriteFile(path, fewColours(c.t, raw), 0o644)
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil {
		c.t.Errorf("%v; go test -update makes it", err)
	} else if info.Size() > maxPicture {
		c.t.Errorf("%s has %d bytes, at most %d", path, info.Size(), maxPicture)
	}
}

// fewColours makes a picture smaller: those of its colours that are used most stand for the others.
func fewColours(t *testing.T, raw []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	uses, size := map[color.Color]int{}, img.Bounds()
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			uses[img.At(x, y)]++
		}
	}
	palette := color.Palette(slices.SortedFunc(maps.Keys(uses), func(a, b color.Color) int {
		return uses[b] - uses[a]
	}))
	small := image.NewPaletted(size, palette[:min(len(palette), 255)])
	draw.Draw(small, size, img, size.Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out,
		small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// screenshot returns what the page looks like, as PNG.
func (c *chromium) screenshot() []byte {
	c.t.Helper()
	picture, err := chromedp.Run(c.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		c.t.Fatal(err)
	}
	return picture
}
