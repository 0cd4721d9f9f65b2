package sandbox

import (
	"strings"
	"testing"
)

func TestParseNetworkRule(t *testing.T) {
	long := strings.Repeat("a", 64)
	for in, want := range map[string]string{
		"allow *":                            "allow *",
		"deny tcp *:25":                      "deny tcp *:25",
		"allow index.example.org":            "allow index.example.org",
		"allow  tcp\tIndex.Example.ORG.:443": "allow tcp index.example.org:443",
		"allow *.Index.Example.ORG:80-443":   "allow *.index.example.org:80-443",
		"allow bücher.example":               "allow xn--bcher-kva.example",
		"allow BÜCHER.example.":              "allow xn--bcher-kva.example",
		"deny _dmarc.example.org":            "deny _dmarc.example.org",
		"allow 203.0.113.7":                  "allow 203.0.113.7",
		"allow 203.0.113.7/24":               "allow 203.0.113.0/24",
		"allow udp 203.0.113.0/24:443":       "allow udp 203.0.113.0/24:443",
		"allow 2001:db8::/32":                "allow 2001:db8::/32",
		"allow [2001:db8::/32]":              "allow 2001:db8::/32",
		"allow tcp [2001:db8::1]:443":        "allow tcp [2001:db8::1]:443",
		"allow ::ffff:10.0.0.0/104":          "allow 10.0.0.0/8",
		"allow tcp [::ffff:10.1.2.3]:80":     "allow tcp 10.1.2.3:80",
		"allow localhost:80":                 "allow localhost:80",
		"":                                   "!words",
		"allow":                              "!words",
		"allow tcp a.test 80":                "!words",
		"permit a.test":                      "!neither with allow nor with deny",
		"allow icmp a.test":                  "!neither tcp nor udp",
		"allow a.test:":                      "!is not an address",
		"allow a.test:0":                     "!port",
		"allow a.test:65536":                 "!port",
		"allow a.test:90-80":                 "!port",
		"allow a.test:-80":                   "!port",
		"allow 1.2.3":                        "!looks like an address",
		"allow 1.2.3.4.5":                    "!looks like an address",
		"allow 127.1":                        "!looks like an address",
		"allow 0x7f000001":                   "!looks like an address",
		"allow 10.0.0.0/33":                  "!is not an address",
		"allow fe80::1%eth0":                 "!is not an address",
		"allow 2001:db8::1:443/":             "!is not an address",
		"allow [2001:db8::1]443":             "!is not an address",
		"allow ::ffff:0.0.0.0/95":            "!is not an address",
		"allow a..test":                      "!empty label",
		"allow *.":                           "!empty label",
		"allow *.*.test":                     "!letters",
		"allow a*.test":                      "!letters",
		"allow a\x00b.test":                  "!letters",
		"allow -a.test":                      "!letters",
		"allow " + long + ".test":            "!longer than 63",
		"allow a." + strings.Repeat("b.", 130) + "test": "!longer than 253",
		"allow " + strings.Repeat("b.", 300):            "!too long",
	} {
		r, err := ParseNetworkRule(in)
		if reason, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), reason) || len(err.Error()) > 500 {
				t.Errorf("%q: %v, %v, want an error about %q", in, r, err, reason)
			}
			continue
		}
		if err != nil || r.String() != want {
			t.Errorf("%q: %q, %v, want %q", in, r, err, want)
		}
	}
}

func TestParseNetworkService(t *testing.T) {
	s, err := ParseNetworkService("Index.internal:443=127.0.0.1:8443")
	if err != nil || s.Name != "index.internal" || s.Port != 443 || s.To.String() != "127.0.0.1:8443" {
		t.Errorf("%+v, %v", s, err)
	}
	if s.String() != "index.internal:443 = 127.0.0.1:8443" {
		t.Errorf("it is written %q", s)
	}
	for _, text := range []string{
		"", "index.internal:80", "index.internal = 127.0.0.1:1", "index.internal:0 = 127.0.0.1:1", ":80 = 127.0.0.1:1", "10.0.0.1:80 = 127.0.0.1:1",
		"a.test:80 = 127.0.0.1", "a.test:80 = 127.0.0.1:0", "a.test:80 = 10.0.0.1:80", "a.test:80 = localhost:80", "*.test:80 = 127.0.0.1:1", "a.test:80 = [fe80::1%lo]:1",
	} {
		if s, err := ParseNetworkService(text); err == nil {
			t.Errorf("%q: %+v and no error", text, s)
		}
	}
}

// FuzzNetworkRule holds that what is read is in normal form.
func FuzzNetworkRule(f *testing.F) {
	for _, s := range []string{"allow tcp *.a.test:80-90", "deny [2001:db8::/32]:1", "allow ::ffff:1.2.3.4", "allow bücher.test", "deny *"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseNetworkRule(text)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		again, err := ParseNetworkRule(r.String())
		if err != nil || again != r {
			t.Fatalf("%q reads as %+v, and its %q as %+v, %v", text, r, r.String(), again, err)
		}
		if r.Prefix.IsValid() && r.Name != "" || r.First > r.Last {
			t.Fatalf("%q reads as %+v", text, r)
		}
	})
}
