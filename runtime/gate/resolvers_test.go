package gate

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestNewResolvers moves the host to another resolver while a gate runs.
func TestNewResolvers(t *testing.T) {
	w := newWorld(t)
	w.resolver(zone(t))
	m := w.manager(func(c *Config) {
		w.must(os.WriteFile(c.ResolvConf, []byte("nameserver 10.1.2.3\n"), 0o644)) // where nobody answers
	})
	a := w.attach(m, "moves")
	if m := w.query(a, "udp", "public.test.", 1); m.Rcode == 0 {
		t.Fatalf("resolved without a resolver: %v", m)
	}
	before := gatePIDs(t)
	cfg, err := m.loadConfig("moves")
	w.must(err)
	cfg.Resolvers = parseResolvConf([]byte("nameserver " + resolverAddr))
	w.must(m.setResolvers("moves", cfg.Resolvers))
	w.eventually("the new resolver is asked", func() bool { return w.query(a, "udp", "public.test.", 1).Rcode == 0 })
	if now := gatePIDs(t); !slices.Equal(now, before) {
		t.Errorf("the gate was %v and is %v", before, now)
	}
}

func TestParseResolvConf(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "[127.0.0.1:53]",
		"search lan\noptions edns0\n": "[127.0.0.1:53]",
		"nameserver 10.0.0.1\n":       "[10.0.0.1:53]",
		"nameserver 127.0.0.53\nnameserver fe80::1%eth0\n#nameserver 9.9.9.9\nnameserver 1.1.1.1 # ours\nnameserver 8.8.8.8": "[127.0.0.53:53 [fe80::1%eth0]:53 1.1.1.1:53]",
		"nameserver\nnameserver what\n\tnameserver\t10.0.0.2":                                                                "[10.0.0.2:53]",
	} {
		if got := fmt.Sprint(parseResolvConf([]byte(in))); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
