package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
)

// readIDs reads at most n event ids of the default chat after the given one,
// and drops the connection.
func (c *caller) readIDs(n int, header, query string) []int {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://daemon/v1/chats/default/events"+query, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if header != "" {
		req.Header.Set("Last-Event-ID", header)
	}
	res, err := c.client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	if ct := res.Header.Get("Content-Type"); ct != "text/event-stream" {
		c.t.Fatalf("the stream's type is %q", ct)
	}
	var ids []int
	for sc := bufio.NewScanner(res.Body); len(ids) < n && sc.Scan(); {
		if text, ok := strings.CutPrefix(sc.Text(), "id: "); ok {
			id, err := strconv.Atoi(text)
			if err != nil {
				c.t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	return ids
}

// TestEventsGoOnWhereTheyWereCut reads events a few at a time over a new
// connection each, while they come.
func TestEventsGoOnWhereTheyWereCut(t *testing.T) {
	d := daemontest.Start(t)
	c := callerAs(t, d, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 8 {
			cmd, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Shell: fmt.Sprintf("echo %d >/outputs/%d.txt", i, i)})
			if err == nil {
				_, err = d.Wait(t.Context(), api.DefaultChat, cmd.ID)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	const most = 20 // a sandbox, and several of each command
	var all []int
	for round := 0; len(all) < most; round++ {
		last := ""
		if len(all) > 0 {
			last = strconv.Itoa(all[len(all)-1])
		}
		if round%2 == 0 || last == "" {
			all = append(all, c.readIDs(1+round%5, last, "")...)
		} else {
			all = append(all, c.readIDs(1+round%5, "", "?after="+last)...)
		}
	}
	for i, id := range all {
		if id != i+1 {
			t.Fatalf("event %d came at place %d of %v", id, i+1, all)
		}
	}
	<-done
	// The header is what a browser sends on its own: it wins over the address.
	if ids := c.readIDs(1, "5", "?after=2"); ids[0] != 6 {
		t.Errorf("after 5 comes %d", ids[0])
	}
}

func TestRangesOfContent(t *testing.T) {
	d := daemontest.Start(t)
	cmd := d.Shell("seq 100000 | tee /outputs/seq.txt >/workspace/seq.txt")
	if len(cmd.Cells) != 1 {
		t.Fatalf("%+v", cmd)
	}
	var whole bytes.Buffer
	for i := range 100000 {
		fmt.Fprintln(&whole, i+1)
	}
	size := whole.Len()
	c := callerAs(t, d, 0)
	for _, target := range []string{"/v1/chats/default/cells/1/content", "/v1/chats/default/files/content?path=/workspace/seq.txt"} {
		get := c.do("GET", target, "")
		if get.status != 200 || get.body != whole.String() {
			t.Errorf("%s: %d with %d bytes", target, get.status, len(get.body))
		}
		head := c.do("HEAD", target, "")
		if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != strconv.Itoa(size) {
			t.Errorf("HEAD %s: %d, %q", target, head.status, head.header)
		}
		// What a guest made must not act as a page of this origin.
		if get.header.Get("Content-Security-Policy") != "sandbox" || get.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %q", target, get.header)
		}
		for spec, want := range map[string]string{
			"bytes=0-4":                      whole.String()[:5],
			"bytes=100-199":                  whole.String()[100:200],
			"bytes=-7":                       whole.String()[size-7:],
			fmt.Sprintf("bytes=%d-", size-3): whole.String()[size-3:],
		} {
			a := c.do("GET", target, "", "Range", spec)
			if a.status != 206 || a.body != want || !strings.HasSuffix(a.header.Get("Content-Range"), "/"+strconv.Itoa(size)) {
				t.Errorf("%s of %s: %d %q, %q", spec, target, a.status, a.body, a.header)
			}
		}
		if a := c.do("GET", target, "", "Range", fmt.Sprintf("bytes=%d-", size+10)); a.status != 416 {
			t.Errorf("a range behind the end of %s: %d", target, a.status)
		} else if e := a.refusal(t); e.Code != api.CodeInvalid {
			t.Errorf("a range behind the end of %s: %+v", target, e)
		}
		if tag := get.header.Get("ETag"); tag != "" {
			if a := c.do("GET", target, "", "If-None-Match", tag); a.status != 304 || a.body != "" {
				t.Errorf("%s with its own tag: %d", target, a.status)
			}
		}
	}
}
