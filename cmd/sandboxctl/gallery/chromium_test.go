package gallery_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"mediasandbox/internal/testenv"
)

// startChromium enters the media image, which holds a headless Chromium with
// all it needs, and becomes it. The mounts are in a namespace of the process's
// own and go with it. /tmp/downloads inside is the directory downloads.
const startChromium = `#!/bin/sh
set -eu
if [ "${1-}" != inside ]; then exec unshare -m "$0" inside "$@"; fi
shift
root=$DIR/root
mount --make-rprivate /
mount -t erofs -o loop,ro "$IMAGE" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir "$root/tmp/downloads"
mount --bind "$DIR/downloads" "$root/tmp/downloads"
export HOME=/tmp
exec chroot "$root" /usr/lib/chromium/chromium-headless-shell "$@"
`

// chromium is a browser of a test.
type chromium struct {
	ctx       context.Context
	downloads string
}

// newChromium starts a browser that reaches nothing but loopback. rebinds is a
// name that it resolves to loopback, as a hostile DNS server may.
func newChromium(t *testing.T, rebinds string) *chromium {
	t.Helper()
	dir := testenv.Dir(t)
	for _, name := range []string{"root", "downloads"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	start := filepath.Join(dir, "start")
	if err := os.WriteFile(start, []byte(startChromium), 0o700); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(start), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir("/tmp/profile"),
		chromedp.Env("DIR="+dir, "IMAGE="+testenv.Image(t).Path),
		chromedp.Flag("host-resolver-rules", "MAP "+rebinds+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
		chromedp.Flag("autoplay-policy", "no-user-gesture-required"),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	alloc, cancelAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("end the browser: %v", err)
		}
		cancel()
		cancelAlloc()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	_, err := chromedp.CallBrowser(ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllow, DownloadPath: "/tmp/downloads",
	})
	if err != nil {
		t.Fatalf("let the browser download: %v", err)
	}
	return &chromium{ctx: ctx, downloads: filepath.Join(dir, "downloads")}
}

// tab is a page of the browser. What its scripts throw fails the test.
type tab struct {
	*testing.T
	ctx context.Context
}

func (c *chromium) tab(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(c.ctx, chromedp.WithListener(func(ev any) {
		if thrown, ok := ev.(*runtime.EventExceptionThrown); ok {
			t.Errorf("the page threw %v", thrown.ExceptionDetails)
		}
	}))
	t.Cleanup(cancel)
	p := &tab{t, ctx}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a tab: %v", err)
	}
	p.do(chromedp.EmulateViewport(1440, 900))
	return p
}

// do performs actions, within half a minute.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 15*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("%v; the page reads:\n%s", err, p.text())
	}
}

// text is what the page reads.
func (p *tab) text() string {
	ctx, cancel := context.WithTimeout(p.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// until waits for a JavaScript expression to be true.
func (p *tab) until(expression string) {
	p.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if err == nil && ok {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("it does not come to %s (%v); the page reads:\n%s", expression, err, p.text())
		}
		<-time.After(50 * time.Millisecond)
	}
}

// eval returns what an expression is.
func eval[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 15*time.Second)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// run runs a script for what it does.
func (p *tab) run(script string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](script))
}

// click clicks on the first element that a CSS selector finds.
func (p *tab) click(selector string) {
	p.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

// close closes the viewer.
func (p *tab) close() {
	p.Helper()
	p.click("#close")
	p.until(`!document.querySelector("#viewer[open]")`)
}
