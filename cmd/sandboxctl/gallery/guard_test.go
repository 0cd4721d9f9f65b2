package gallery_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"mediasandbox/cmd/sandboxctl/gallery"
	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/daemon/daemontest"
)

// visitor is a caller of the gallery that is no browser.
type visitor struct {
	*testing.T
	base, cookie, key string
}

var keyInPage = regexp.MustCompile(`name="gallery-key" content="([A-Z2-7]{26})"`)

// open uses a link.
func open(t *testing.T, link string) *visitor {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{T: t, base: "http://" + u.Host}
	status, h, body := v.ask(http.MethodGet, u.RequestURI(), nil)
	found := keyInPage.FindStringSubmatch(body)
	if status != http.StatusOK || found == nil {
		t.Fatalf("the link answers %d: %s", status, body)
	}
	set := h.Get("Set-Cookie")
	if !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") {
		t.Errorf("the cookie is %s", set)
	}
	v.cookie, _, _ = strings.Cut(set, ";")
	v.key = found[1]
	return v
}

// ask makes a request; headers replace those of the session, and an empty value
// leaves one out.
func (v *visitor) ask(method, path string, headers map[string]string) (int, http.Header, string) {
	v.Helper()
	req, err := http.NewRequestWithContext(v.Context(), method, v.base+path, nil)
	if err != nil {
		v.Fatal(err)
	}
	all := map[string]string{"Cookie": v.cookie, "Gallery-Key": v.key}
	for name, value := range headers {
		all[name] = value
	}
	for name, value := range all {
		switch {
		case name == "Host":
			req.Host = value
		case value != "":
			req.Header.Set(name, value)
		}
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		v.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		v.Fatal(err)
	}
	return res.StatusCode, res.Header, string(body)
}

// want asks and wants that status.
func (v *visitor) want(status int, method, path string, headers map[string]string) (http.Header, string) {
	v.Helper()
	got, h, body := v.ask(method, path, headers)
	if got != status {
		v.Errorf("%s %s %v answers %d, want %d: %s", method, path, headers, got, status, body)
	}
	for name, value := range map[string]string{"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer"} {
		if h.Get(name) != value {
			v.Errorf("%s %s: %s is %q", method, path, name, h.Get(name))
		}
	}
	if csp := h.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		v.Errorf("%s %s: the policy is %q", method, path, csp)
	}
	return h, body
}

// TestWhoIsAnswered asks as all those who may not.
func TestWhoIsAnswered(t *testing.T) {
	d := daemontest.Start(t)
	d.Shell(`echo secret >/outputs/secret.txt`)
	s := serve(t, d.Client)
	link := <-s.links
	stranger := &visitor{T: t, base: "http://" + s.Addr()}
	paths := []string{"/", "/assets/app.js", "/api/info", "/api/chats", "/api/events", "/api/chats/default/cells/1/content", "/api/chats/default/export"}
	for _, path := range paths {
		stranger.want(http.StatusUnauthorized, http.MethodGet, path, nil)
	}
	stranger.want(http.StatusForbidden, http.MethodGet, "/?token=", nil)
	stranger.want(http.StatusForbidden, http.MethodGet, "/?token=ABC", nil)
	stranger.want(http.StatusUnauthorized, http.MethodHead, link[strings.Index(link, "/?"):], nil) // uses nothing up

	v := open(t, link)
	v.want(http.StatusForbidden, http.MethodGet, link[strings.Index(link, "/?"):], nil) // a second use
	if next := <-s.links; next == link {
		t.Error("the next link is the one that was used")
	}
	content := "/api/chats/default/cells/1/content"
	if _, body := v.want(http.StatusOK, http.MethodGet, content, nil); body != "secret\n" {
		t.Errorf("the cell holds %q", body)
	}
	if h, body := v.want(http.StatusPartialContent, http.MethodGet, content, map[string]string{"Range": "bytes=1-3"}); body != "ecr" || h.Get("Content-Range") != "bytes 1-3/7" {
		t.Errorf("the range holds %q of %s", body, h.Get("Content-Range"))
	}
	v.want(http.StatusRequestedRangeNotSatisfiable, http.MethodGet, content, map[string]string{"Range": "bytes=70-"})
	v.want(http.StatusNotFound, http.MethodGet, "/api/chats/default/cells/9/content", nil)
	v.want(http.StatusBadRequest, http.MethodGet, "/api/chats/default/cells/x/content", nil)

	// What else listens on loopback is sent the cookie; it has no key.
	v.want(http.StatusUnauthorized, http.MethodGet, content, map[string]string{"Gallery-Key": ""})
	v.want(http.StatusUnauthorized, http.MethodGet, content, map[string]string{"Gallery-Key": "A" + v.key[1:] + "A"})
	v.want(http.StatusUnauthorized, http.MethodGet, content, map[string]string{"Cookie": ""})
	// Another name for this address.
	for _, host := range []string{"rebound.test", "rebound.test:" + port(s), "127.0.0.1", "127.0.0.1.rebound.test:" + port(s), "[::1]:" + port(s)} {
		v.want(http.StatusMisdirectedRequest, http.MethodGet, content, map[string]string{"Host": host})
	}
	// Another origin, as browsers tell it.
	for _, site := range []string{"cross-site", "same-site", "none"} {
		v.want(http.StatusForbidden, http.MethodGet, content, map[string]string{"Sec-Fetch-Site": site})
	}
	replay, own := "/api/chats/default/cells/1/replay", "http://"+s.Addr()
	for _, origin := range []string{"", "null", "http://rebound.test", "http://127.0.0.1:1", "http://localhost:" + port(s), "https://" + s.Addr()} {
		v.want(http.StatusForbidden, http.MethodPost, replay, map[string]string{"Origin": origin})
	}
	v.want(http.StatusForbidden, http.MethodPost, replay, map[string]string{"Origin": own, "Sec-Fetch-Site": "same-site"})
	v.want(http.StatusUnauthorized, http.MethodPost, replay+"?k="+v.key, map[string]string{"Origin": own, "Gallery-Key": ""})
	if _, body := v.want(http.StatusOK, http.MethodPost, replay, map[string]string{"Origin": own, "Sec-Fetch-Site": "same-origin"}); !strings.Contains(body, `"identical"`) {
		t.Errorf("the replay answers %s", body)
	}
}

func port(s *served) string {
	_, p, _ := net.SplitHostPort(s.Addr())
	return p
}

// TestOneChatOnly asks a gallery of one chat for another.
func TestOneChatOnly(t *testing.T) {
	d := daemontest.Start(t)
	if _, err := d.CreateChat(t.Context(), api.NewChat{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	s := serve(t, d.Client, func(c *gallery.Config) { c.Chat, c.IPv6 = "other", true })
	v := open(t, <-s.links)
	v.want(http.StatusForbidden, http.MethodGet, "/api/chats/default/cells", nil)
	v.want(http.StatusOK, http.MethodGet, "/api/chats/other/cells", nil)
	if _, body := v.want(http.StatusOK, http.MethodGet, "/api/chats", nil); strings.Contains(body, `"default"`) {
		t.Errorf("it lists %s", body)
	}
	v.base = "http://[::1]:" + port(s)
	v.want(http.StatusOK, http.MethodGet, "/api/chats/other/cells", nil)
}

// TestNoDaemon asks a gallery whose daemon is not there.
func TestNoDaemon(t *testing.T) {
	s := serve(t, client.New("/nowhere/api.sock", ""))
	v := open(t, <-s.links)
	if _, body := v.want(http.StatusBadGateway, http.MethodGet, "/api/chats", nil); !strings.Contains(body, "is sandboxd running?") {
		t.Errorf("it answers %s", body)
	}
}

const hostileCells = `
import os
os.makedirs("/outputs/odd", exist_ok=True)
open("/outputs/<script>window.pwned=1<", "w").write("<script>window.pwned=2</script>")
open("/outputs/<img src=x onerror=window.pwned=3>.png", "wb").write(open("/inputs/coffee.png", "rb").read())
open("/outputs/page.html", "w").write("<!doctype html><script>window.pwned=4; fetch('/api/chats').then(r=>r.text()).then(t=>document.title=t)</script>")
open("/outputs/drawing.svg", "w").write('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" onload="window.pwned=5">'
  '<script>window.pwned=6</script><rect width="40" height="40" fill="teal"/></svg>')
open("/outputs/code.js", "w").write("window.pwned = 7;")
open("/outputs/style.css", "w").write("body { display: none }")
`

// TestHostileCells opens cells that would run scripts, in a real browser.
func TestHostileCells(t *testing.T) {
	d := daemontest.Start(t)
	put(t, d, "coffee.png")
	if cmd := d.Finish(api.NewCommand{Python: hostileCells, Label: `"><script>window.pwned=8</script>`}); len(cmd.Cells) != 6 {
		t.Fatalf("it made %d cells: %+v", len(cmd.Cells), cmd.Skipped)
	}
	s := serve(t, d.Client)
	p := newChromium(t, "rebound.test").tab(t)
	p.do(chromedp.Navigate(<-s.links))
	p.until(`document.querySelectorAll(".card").length === 6`)
	for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
		p.click(card(n) + " a")
		p.until(`document.querySelector(".made pre")?.textContent.includes("pwned")`)
		p.until(`document.querySelector(".stage img, .stage .text, .stage .note")`)
		p.close()
	}
	// As a script, a style or a page of the page's own origin they are nothing.
	p.run(`window.tried = 0; window.key = localStorage.getItem("media-sandbox-gallery-key");
for (let n = 1; n <= 6; n++) for (const tag of ["script", "link"]) {
  const el = document.createElement(tag), to = "/api/chats/default/cells/" + n + "/content?k=" + key;
  if (tag === "link") { el.rel = "stylesheet"; el.href = to; } else { el.setAttribute("nonce", "x"); }
  el.onload = () => { window.tried = -1000; };
  el.onerror = () => { window.tried++; };
  if (tag === "script") { try { el.src = to; } catch { window.tried++; continue; } }
  document.head.append(el);
}`)
	p.until(`window.tried === 12`)
	if eval[bool](p, `"pwned" in window || document.querySelector("main script") !== null || getComputedStyle(document.body).display === "none"`) {
		t.Errorf("a cell acted as part of the page:\n%s", p.text())
	}
	_, h, _ := open(t, <-s.links).ask(http.MethodGet, "/api/chats/default/cells/3/content", nil)
	for name, want := range map[string]string{"Content-Type": "application/octet-stream", "Content-Security-Policy": "sandbox; default-src 'none'"} {
		if h.Get(name) != want {
			t.Errorf("%s of a page is %q", name, h.Get(name))
		}
	}
	if got := h.Get("Content-Disposition"); !strings.HasPrefix(got, "attachment") {
		t.Errorf("a page is not a download: %s", got)
	}
}

// TestOtherOrigins lets pages of other origins try, in a browser with an open
// session.
func TestOtherOrigins(t *testing.T) {
	d := daemontest.Start(t)
	put(t, d, "coffee.png")
	d.Shell(`cp /inputs/coffee.png /outputs/`)
	s := serve(t, d.Client)
	c := newChromium(t, "rebound.test")
	owner := c.tab(t)
	owner.do(chromedp.Navigate(<-s.links))
	owner.until(`document.querySelector(".card img")?.naturalWidth > 0`)
	key := eval[string](owner, `localStorage.getItem("media-sandbox-gallery-key")`)

	// The other page lies on the same address, so that the cookie is sent with
	// what it asks for, and it even knows the key.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><title>other</title><body>`)
	}))
	defer other.Close()
	p := c.tab(t)
	p.do(chromedp.Navigate(other.URL))
	p.until(`document.title === "other"`)
	base := "http://" + s.Addr()
	p.run(`window.got = []; window.lost = 0;
const base = "` + base + `", k = "?k=` + key + `";
const lost = () => { window.lost++; }, got = (what) => () => { window.got.push(what); };
for (const path of ["/", "/api/chats" + k, "/api/chats/default/cells/1/content" + k]) {
  fetch(base + path, {credentials: "include"}).then(got("fetch " + path), lost);
  fetch(base + path, {credentials: "include", headers: {"Gallery-Key": "x"}}).then(got("fetch with a header " + path), lost);
}
const img = new Image(); img.onload = got("img"); img.onerror = lost; img.src = base + "/api/chats/default/cells/1/content" + k;
const events = new EventSource(base + "/api/events" + k, {withCredentials: true}); events.onmessage = got("events"); events.addEventListener("hello", got("hello")); events.onerror = () => { events.close(); lost(); };
const script = document.createElement("script"); script.onload = got("script"); script.onerror = lost; script.src = base + "/assets/app.js"; document.body.append(script);
fetch(base + "/api/chats/default/cells/1/replay" + k, {method: "POST", mode: "no-cors", credentials: "include"}).then(lost, lost);`)
	p.until(`window.lost === 10`)
	if got := eval[[]string](p, `window.got`); len(got) > 0 {
		t.Errorf("another origin got %v", got)
	}

	// A name that resolves to loopback, as after DNS rebinding.
	p.do(chromedp.Navigate("http://rebound.test:" + port(s) + "/"))
	if text := p.text(); !strings.Contains(text, "loopback address only") {
		t.Errorf("a rebound name gets %s", text)
	}
	// A frame of another page stays empty.
	p.do(chromedp.Navigate(other.URL))
	p.run(`const f = document.createElement("iframe"); f.src = "` + base + `/"; f.onload = () => { window.framed = true; }; document.body.append(f)`)
	p.until(`window.framed`)
	if eval[bool](p, `(() => { try { return !!document.querySelector("iframe").contentDocument?.querySelector("main"); } catch { return false; } })()`) {
		t.Error("another page frames the gallery")
	}
	cmds, err := d.Commands(t.Context(), api.DefaultChat)
	if err != nil || len(cmds) != 1 {
		t.Errorf("commands: %+v, %v", cmds, err)
	}
}
