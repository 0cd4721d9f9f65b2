package gallery_test

import (
	"archive/zip"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"mediasandbox/cmd/sandboxctl/gallery"
	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// served is a gallery of a test.
type served struct {
	*gallery.Gallery
	links chan string
}

func serve(t *testing.T, c *client.Client, change ...func(*gallery.Config)) *served {
	t.Helper()
	s := &served{links: make(chan string, 16)}
	cfg := gallery.Config{
		Client: c, Link: func(url string) { s.links <- url }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := gallery.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Gallery = g
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the gallery ended with %v", err)
		}
	})
	return s
}

// put gives the default chat files of testdata/media as inputs.
func put(t *testing.T, d *daemontest.Daemon, names ...string) {
	t.Helper()
	for _, name := range names {
		f, err := os.Open(testenv.Media(t, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.PutFile(t.Context(), api.DefaultChat, "/inputs/"+name, f)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

const (
	makeFrame = `ffmpeg -v error -ss 1 -i /inputs/hallway.avi -frames:v 1 /outputs/frame.png`
	makeVideo = `ffmpeg -v error -i /inputs/hallway.avi -t 4 -c:v libx264 -pix_fmt yuv420p -movflags +faststart /outputs/walk.mp4`
	makeSound = `ffmpeg -v error -f lavfi -i "sine=frequency=330:duration=3" -af "volume=7,afade=in:d=1,afade=out:st=2:d=1" /outputs/tone.wav`
	makePhoto = `from PIL import Image, ImageEnhance
photo = Image.open("/inputs/coffee.png").convert("RGB")
ImageEnhance.Color(photo).enhance(0.1).save("/outputs/coffee.jpg", quality=92)`
)

// card is the selector of a cell's card.
func card(ordinal string) string { return `[data-ordinal="` + ordinal + `"]` }

// TestAPerson does what a person does with the page, in a real browser, over a
// daemon that dies in the middle.
func TestAPerson(t *testing.T) {
	d := daemontest.Spawn(t)
	put(t, d.Daemon, "hallway.avi", "coffee.png")
	c := newChromium(t, "rebound.test")
	s := serve(t, d.Client)
	p := c.tab(t)
	p.do(chromedp.Navigate(<-s.links))
	p.until(`location.search === "" && document.querySelector("#empty")?.checkVisibility()`)

	// A cell appears while one watches, and a video with its strip.
	d.Shell(makeFrame)
	p.until(`document.querySelector('` + card("1") + ` img')?.naturalWidth > 0`)
	p.until(`document.querySelector("#live").textContent.includes("frame.png")`)
	d.Shell(makeVideo)
	d.Shell(makeSound)
	d.Finish(api.NewCommand{Python: makePhoto, Label: "grading", Inputs: []string{"coffee.png"}})
	d.Shell(`magick /inputs/coffee.png -negate /outputs/negative.png; date +%N >/outputs/now.txt`)
	p.until(`document.querySelectorAll(".card").length === 6`)
	p.until(`document.querySelector('` + card("3") + ` .wave')`)

	t.Run("play", func(t *testing.T) { playVideo(at(p, t)) })
	t.Run("sound", func(t *testing.T) {
		p := at(p, t)
		p.click(card("3") + " a")
		p.until(`document.querySelector("audio")?.readyState >= 2 && document.querySelector(".seek .wave")`)
		p.run(`document.querySelector("audio").play()`)
		p.until(`document.querySelector("audio").currentTime > 0.2`)
		p.close()
	})
	t.Run("palette", func(t *testing.T) { searchPalette(at(p, t)) })
	t.Run("compare", func(t *testing.T) { compare(at(p, t)) })
	t.Run("text", func(t *testing.T) {
		p := at(p, t)
		p.click(card("6") + " a")
		p.until(`/^\d{9}\n$/.test(document.querySelector(".text")?.textContent)`)
	})
	t.Run("replay", func(t *testing.T) {
		p := at(p, t)
		p.click("#replay")
		p.until(`document.querySelector(".verdict.differs")?.textContent.includes("Bytes differ from")`)
		p.close()
		p.click(card("4") + " a")
		p.click("#replay")
		p.until(`document.querySelector(".verdict.identical")?.textContent.includes("Every byte is the same")`)
	})
	t.Run("reload", func(t *testing.T) {
		p := at(p, t)
		p.do(chromedp.Reload())
		p.until(`document.querySelector("#viewer[open] h2")?.textContent.includes("coffee.jpg")`)
		p.click("#close")
		p.until(`!document.querySelector("#viewer[open]") && document.activeElement.closest('` + card("4") + `')`)
	})
	t.Run("export", func(t *testing.T) { export(at(p, t), c) })
	t.Run("cancel", func(t *testing.T) { cancelCommand(at(p, t), d.Daemon) })
	t.Run("lose the daemon", func(t *testing.T) {
		p := at(p, t)
		d.Kill()
		p.until(`document.querySelector("#away").textContent.includes("no daemon answers")`)
		d.Again()
		p.until(`document.querySelector("#away").hidden`)
		d.Shell(`magick -size 32x32 xc:teal /outputs/teal.png`)
		p.until(`document.querySelector('` + card("7") + ` img')?.naturalWidth > 0`)
	})
}

// at gives a tab to a subtest.
func at(p *tab, t *testing.T) *tab { return &tab{t, p.ctx} }

func playVideo(p *tab) {
	p.click(card("2") + " a")
	p.until(`document.querySelector("video")?.readyState >= 2`)
	p.until(`document.querySelector(".seek.strip img")?.naturalWidth > 0`)
	p.run(`document.querySelector("video").play()`)
	p.until(`document.querySelector("video").currentTime > 0.3`)
	// A click on the strip seeks, by a range of the file.
	p.run(`document.querySelector("video").pause()`)
	p.run(`{ const r = document.querySelector(".seek input"); r.value = 750; r.dispatchEvent(new Event("input")); }`)
	p.until(`Math.abs(document.querySelector("video").currentTime - 3) < 0.2 && !document.querySelector("video").seeking`)
	p.until(`document.querySelector(".made").textContent.includes("libx264")`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.querySelector("#viewer[open]")`)
}

func searchPalette(p *tab) {
	p.do(chromedp.KeyEvent("/"))
	p.until(`document.querySelector("#palette[open]") && document.activeElement.id === "query"`)
	p.do(chromedp.KeyEvent("image"))
	p.until(`document.querySelectorAll("#found li").length === 3`)
	first := eval[string](p, `document.querySelector("#found [aria-selected=true]").textContent`)
	p.do(chromedp.KeyEvent(kb.ArrowDown))
	if second := eval[string](p, `document.querySelector("#found [aria-selected=true]").textContent`); second == first {
		p.Errorf("the arrow leaves %q chosen", first)
	}
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.querySelector("#palette[open]")`)
	p.do(chromedp.KeyEvent("/"), chromedp.KeyEvent("grading"))
	p.until(`document.querySelectorAll("#found li").length === 1`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#viewer[open] h2")?.textContent.includes("#4 coffee.jpg")`)
}

func compare(p *tab) {
	p.click("#compare")
	p.until(`document.querySelector(".before")?.naturalWidth === 600 && document.querySelector(".after").naturalWidth === 600`)
	clip := `getComputedStyle(document.querySelector(".after")).clipPath`
	half := eval[string](p, clip)
	p.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	p.until(clip + ` !== "` + half + `"`)
	p.click("#compare")
	p.click(`[aria-label="Zoom in"]`)
	p.until(`document.querySelector(".stage.image").dataset.zoom === "1.50"`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.querySelector("#viewer[open]")`)
}

func export(p *tab, c *chromium) {
	p.click("#export")
	deadline := time.Now().Add(30 * time.Second)
	for {
		found, err := filepath.Glob(filepath.Join(c.downloads, "*.zip"))
		if err != nil {
			p.Fatal(err)
		}
		if len(found) == 1 {
			archive, err := zip.OpenReader(found[0])
			if err == nil {
				defer archive.Close()
				if len(archive.File) < 7 {
					p.Errorf("the archive holds %d files", len(archive.File))
				}
				return
			}
		}
		if time.Now().After(deadline) {
			p.Fatalf("the archive does not come: %v", found)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func cancelCommand(p *tab, d *daemontest.Daemon) {
	cmd, err := d.Client.Start(p.Context(), api.DefaultChat, api.NewCommand{
		Shell: `for i in 1 2 3; do echo "line $i"; done
for i in $(seq 300); do echo '@progress {"percent": 40, "stage": "grading", "eta": 90}'; sleep 0.5; done`,
	})
	if err != nil {
		p.Fatal(err)
	}
	row := `[data-command="` + cmd.ID + `"]`
	p.until(`document.querySelector('#running ` + row + ` progress')?.value === 40`)
	p.until(`document.querySelector('#running ` + row + ` .status').textContent.includes("1:")`)
	p.click(row + " summary")
	p.until(`document.querySelector('` + row + ` pre').textContent.includes("line 3")`)
	p.click(row + " button")
	p.until(`document.querySelector('#ended ` + row + `')?.textContent.includes("canceled")`)
	if ended, err := d.Wait(p.Context(), api.DefaultChat, cmd.ID); err != nil || ended.State != api.StateCanceled {
		p.Errorf("the command ended as %s: %v", ended.State, err)
	}
}
