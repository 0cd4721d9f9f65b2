package gallery_test

import (
	"bytes"
	"context"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// shotsEnv names a directory for the pictures that TestLooks makes of the page;
// without it they are only looked at.
const shotsEnv = "MEDIA_SANDBOX_SHOTS"

// fill gives a chat what a day of work leaves.
func fill(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	put(t, d, "hallway.avi", "coffee.png", "rocket.jpg")
	for _, cmd := range []api.NewCommand{
		{Shell: makeVideo}, {Shell: makeFrame}, {Shell: makeSound},
		{Python: `from PIL import Image, ImageEnhance, ImageFilter
photo = Image.open("/inputs/coffee.png").convert("RGB")
ImageEnhance.Color(photo).enhance(0.05).save("/outputs/coffee-mono.jpg", quality=92)
ImageEnhance.Brightness(photo).enhance(1.25).save("/outputs/coffee-bright.jpg", quality=92)`, Label: "grading"},
		{Shell: `ffmpeg -v error -ss 1 -i /inputs/hallway.avi -t 4 -vf "crop=ih:ih,hue=s=0.3,drawtext=text='Spring drop':fontsize=64:fontcolor=white:x=(w-tw)/2:y=h-th-48" -c:v libx264 -pix_fmt yuv420p -movflags +faststart /outputs/spring-drop.mp4`, Label: "social"},
		{Shell: `magick /inputs/rocket.jpg -modulate 105,60,104 -sigmoidal-contrast 5,50% -quality 92 /outputs/rocket-dusk.jpg`, Label: "grading", Inputs: []string{"rocket.jpg"}},
		{Shell: `printf '1\n00:00:00,000 --> 00:00:02,000\nPeople walk past.\n' >/outputs/captions.srt; false`},
	} {
		d.Finish(cmd)
	}
}

// TestLooks visits the page's views on a desktop and on a phone, light and dark:
// axe finds no serious issue in any, and nothing is wider than the window.
func TestLooks(t *testing.T) {
	d := daemontest.Start(t)
	fill(t, d)
	s := serve(t, d.Client)
	axe, err := os.ReadFile(filepath.Join("testdata", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	p := newChromium(t, "rebound.test").tab(t)
	p.do(chromedp.Navigate(<-s.links))
	p.until(`document.querySelectorAll(".card").length === 8`)
	p.until(`document.querySelectorAll(".card img").length >= 6`)
	cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{
		Shell: `for i in $(seq 600); do echo '@progress {"percent": 62, "stage": "encoding", "eta": 21}'; sleep 0.5; done`,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.until(`document.querySelector("#running progress")?.value === 62`)
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1440, 900}, {"phone", 390, 844}} {
		for _, theme := range []string{"light", "dark"} {
			t.Run(size.name+"-"+theme, func(t *testing.T) {
				p := at(p, t)
				p.do(chromedp.EmulateViewport(size.width, size.height))
				p.wear(theme)
				p.visit(string(axe), size.name+"-"+theme)
			})
		}
	}
	if err := d.Kill(t.Context(), api.DefaultChat, cmd.ID, 0); err != nil {
		t.Error(err)
	}
}

// wear makes the browser prefer a scheme of colours.
func (p *tab) wear(theme string) {
	p.Helper()
	p.do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
		})
		return chromedp.Void{}, err
	})
}

// visit looks at each view of the page.
func (p *tab) visit(axe, name string) {
	views := []struct{ name, hash, ready string }{
		{"grid", "#/default", `document.querySelectorAll(".card img").length >= 6 && [...document.querySelectorAll(".card img")].every((i) => i.naturalWidth > 0 || i.loading === "lazy")`},
		{"video", "#/default/1", `document.querySelector("video")?.readyState >= 2 && document.querySelector(".seek img")?.naturalWidth > 0`},
		{"audio", "#/default/3", `document.querySelector("audio")?.readyState >= 2`},
		{"image", "#/default/7", `document.querySelector("#compare")`},
		{"text", "#/default/8", `document.querySelector(".text")?.textContent.includes("walk past")`},
	}
	for _, v := range views {
		p.run(`if (document.querySelector("#viewer[open]")) document.querySelector("#viewer").close()`)
		p.until(`!document.querySelector("#viewer[open]")`)
		p.run(`location.hash = "` + v.hash + `"`)
		p.until(v.ready)
		if v.hash != "#/default" {
			p.until(`document.querySelector(".made")?.childElementCount > 0`)
		}
		if v.name == "image" {
			p.click("#compare")
			p.until(`document.querySelector(".before")?.naturalWidth > 0`)
		}
		p.check(axe, name+"-"+v.name)
	}
	p.run(`document.querySelector("#viewer").close()`)
	p.until(`!document.querySelector("#viewer[open]")`)
	p.run(`document.querySelector("#search").click()`)
	p.until(`document.querySelectorAll("#found li").length === 8`)
	p.check(axe, name+"-palette")
	p.run(`document.querySelector("#palette").close()`)
}

// check looks at what is shown now.
func (p *tab) check(axe, name string) {
	p.Helper()
	if wide := eval[int](p, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		p.Errorf("%s is %d pixels wider than the window", name, wide)
	}
	if eval[bool](p, `!window.axe`) {
		p.run(axe)
	}
	p.run(`window.found = null; axe.run(document, {resultTypes: ["violations"]}).then((r) => {
  window.found = r.violations.filter((v) => v.impact === "serious" || v.impact === "critical")
    .map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " — " + n.failureSummary).slice(0, 3).join(" | "));
}, (e) => { window.found = ["axe: " + e]; })`)
	p.until(`window.found`)
	if found := eval[[]string](p, `window.found`); len(found) > 0 {
		p.Errorf("%s: axe finds\n%s", name, strings.Join(found, "\n"))
	}
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	if _, err := png.Decode(bytes.NewReader(shot)); err != nil {
		p.Errorf("%s: the picture is none: %v", name, err)
	}
	if dir := os.Getenv(shotsEnv); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o644); err != nil {
			p.Error(err)
		}
	}
}

// TestBundleIsSmall weighs what the program embeds for the page.
func TestBundleIsSmall(t *testing.T) {
	files, err := filepath.Glob("web/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("the page has no files: %v", err)
	}
	var total int64
	for _, name := range append(files, "page.html") {
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		total += st.Size()
	}
	if total > 200_000 {
		t.Errorf("the page weighs %d bytes", total)
	}
}
