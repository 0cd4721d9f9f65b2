package gallery

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// keyHeader carries a session's key; keyParam does where a browser sets no
// headers: pictures, media, streams and downloads.
const (
	keyHeader = "Gallery-Key"
	keyParam  = "k"
)

// policy is the page's Content-Security-Policy: nothing but what is embedded
// here, no inline script or style, and no string that becomes markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// guard decides whose requests are answered.
//
// A link with a token that works once opens a session. A session is a cookie
// and a key. The cookie is HttpOnly and SameSite=Strict, but cookies know no
// ports: whatever else listens on this loopback address is sent it too. The key
// is kept in the page's own storage, which is bound to the port, and is sent by
// the page's own requests only. Neither is worth anything without the other.
//
// Names that are not loopback's are refused, so that a name of another site's
// that resolves to loopback (DNS rebinding) gets nothing; and so is what the
// browser says another origin asked for.
type guard struct {
	cookie string
	hosts  map[string]bool
	link   func(string)
	base   string

	mu       sync.Mutex
	token    string
	sessions map[string]string // cookie to key
}

func newGuard(port int, ipv6 bool, link func(string)) *guard {
	p := strconv.Itoa(port)
	g := &guard{
		cookie: "media-sandbox-gallery-" + p, link: link, base: "http://127.0.0.1:" + p,
		hosts: map[string]bool{"127.0.0.1:" + p: true, "localhost:" + p: true},
		token: rand.Text(), sessions: make(map[string]string),
	}
	if ipv6 {
		g.hosts["[::1]:"+p] = true
	}
	return g
}

// announce tells the link that works next.
func (g *guard) announce() {
	g.mu.Lock()
	url := g.base + "/?token=" + g.token
	g.mu.Unlock()
	g.link(url)
}

// exchange gives a new session for the token, and makes another token.
func (g *guard) exchange(token string) (cookie, key string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1 {
		return "", "", false
	}
	cookie, key, g.token = rand.Text(), rand.Text(), rand.Text()
	g.sessions[cookie] = key
	return cookie, key, true
}

// key returns that of the request's session.
func (g *guard) key(r *http.Request) (string, bool) {
	c, err := r.Cookie(g.cookie)
	if err != nil {
		return "", false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	key, ok := g.sessions[c.Value]
	return key, ok
}

// protect lets through to next what a session of this page asks for. enter
// answers a link that was good, with the key of its session.
func (g *guard) protect(next http.Handler, enter func(w http.ResponseWriter, key string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		if !g.hosts[strings.ToLower(r.Host)] {
			http.Error(w, "This server answers to its loopback address only.", http.StatusMisdirectedRequest)
			return
		}
		if r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Has("token") {
			g.enter(w, r, enter)
			return
		}
		key, ok := g.key(r)
		if !ok {
			http.Error(w, "This page needs the link that `sandboxctl gallery` printed last.", http.StatusUnauthorized)
			return
		}
		if !sameOrigin(r) {
			http.Error(w, "Other origins may not ask.", http.StatusForbidden)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/api/") && !hasKey(r, key) {
			http.Error(w, "This page lacks its key: open the link that `sandboxctl gallery` printed last.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *guard) enter(w http.ResponseWriter, r *http.Request, enter func(http.ResponseWriter, string)) {
	cookie, key, ok := g.exchange(r.URL.Query().Get("token"))
	if !ok {
		http.Error(w, "This link was used already. `sandboxctl gallery` has printed the next one.", http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	enter(w, key)
	g.announce()
}

// secure sets what every answer has.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	h.Set("Cache-Control", "no-store")
}

// sameOrigin tells whether the page itself asks, as far as the browser says. A
// person may open it from an address line. What changes something must say
// where it comes from.
func sameOrigin(r *http.Request) bool {
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
	case "none":
		if !safe || r.URL.Path != "/" {
			return false
		}
	default:
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "http://"+r.Host || origin == "" && safe
}

// hasKey tells whether a request proves that it comes from the session's page.
func hasKey(r *http.Request, key string) bool {
	given := r.Header.Get(keyHeader)
	if given == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		given = r.URL.Query().Get(keyParam)
	}
	return subtle.ConstantTimeCompare([]byte(given), []byte(key)) == 1
}
