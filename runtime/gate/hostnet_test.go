package gate

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/sandbox"
)

// TestHostNetworkStaysAsItIs: no firewall rule, forwarding switch, route, rule,
// address or link of the host differs while sandboxes have networks and use
// them, nor after that; neither where the gates' sockets are nor where the
// daemon is.
func TestHostNetworkStaysAsItIs(t *testing.T) {
	w := newWorld(t)
	w.listenTCP(w.outer, publicAddr+":80", echo)
	w.listenUDP(w.outer, publicAddr+":7")
	w.resolver(map[string][]dns.RR{})
	m := w.manager(nil)
	before := w.hostNetwork()
	a := w.attach(m, "one")
	w.compare("after a network was made", before)
	other, err := m.Attach(t.Context(), "two", publicMode)
	w.must(err)
	for _, from := range []sandbox.Attachment{a, other} {
		for _, to := range [][2]string{{"tcp", publicAddr + ":80"}, {"udp", publicAddr + ":7"}} {
			c, _, err := w.guestDial(from, to[0], to[1])
			w.must(err)
			defer c.Close()
			exchange(t, c)
		}
		if c, _, err := w.guestDial(from, "tcp", "10.1.2.3:80"); err == nil {
			c.Close()
			t.Error("a private address was reached")
		}
	}
	w.compare("while both have open flows", before)
	w.must(m.SetPolicy(t.Context(), "one", sandbox.NetworkPolicy{Mode: sandbox.NetworkNone}))
	w.must(m.Detach(t.Context(), "two"))
	w.compare("after one was cut off and one removed", before)
	if len(w.arrivals()) < 4 {
		t.Errorf("the flows never arrived: %q", w.arrivals())
	}
}

// exchange sends a word and reads it back.
func exchange(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	var buf [4]byte
	if n, err := c.Read(buf[:]); err != nil || string(buf[:n]) != "word" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
}

// TestHostNetworkIsReadWhole: what the test above compares shows each kind of
// change, and returns when the change does.
func TestHostNetworkIsReadWhole(t *testing.T) {
	set := func(name, value string) func() error {
		return func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) }
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "extra"}, PeerName: "peer"}
	rule := netlink.NewRule()
	rule.Table, rule.Priority, rule.Family = 77, 77, unix.AF_INET
	route := &netlink.Route{Type: unix.RTN_BLACKHOLE, Dst: &net.IPNet{IP: net.IPv4(203, 0, 113, 0), Mask: net.CIDRMask(24, 32)}, Table: 77}
	changes := []struct {
		what     string
		do, undo func() error
	}{
		{"link", func() error { return netlink.LinkAdd(pair) }, func() error { return netlink.LinkDel(pair) }},
		{"address", func() error { return addrs("lo", "192.0.2.9/32") }, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return netlink.AddrDel(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 9), Mask: net.CIDRMask(32, 32)}})
		}},
		{"route", func() error { return netlink.RouteAdd(route) }, func() error { return netlink.RouteDel(route) }},
		{"rule", func() error { return netlink.RuleAdd(rule) }, func() error { return netlink.RuleDel(rule) }},
		{"IPv4 forwarding", set("ipv4/ip_forward", "1"), set("ipv4/ip_forward", "0")},
		{"IPv6 forwarding", set("ipv6/conf/all/forwarding", "1"), set("ipv6/conf/all/forwarding", "0")},
		{"firewall", func() error { return firewallTable(0) }, func() error { return firewallTable(2) }},
	}
	_, err := inNewNamespace("", func() error {
		if err := loopbackUp(); err != nil {
			return err
		}
		before, err := readNetwork()
		if err != nil {
			return err
		}
		for _, c := range changes {
			if err := c.do(); err != nil {
				return fmt.Errorf("%s: %w", c.what, err)
			}
			changed, err := readNetwork()
			if err != nil {
				return err
			}
			if err := c.undo(); err != nil {
				return fmt.Errorf("%s back: %w", c.what, err)
			}
			if slices.Equal(before, changed) {
				t.Errorf("a change of %s is not seen", c.what)
			}
		}
		after, err := readNetwork()
		if !slices.Equal(before, after) {
			t.Errorf("it differs afterwards:\n%s", difference(before, after))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// firewallTable makes (message 0) or removes (message 2) a table of nftables.
func firewallTable(message int) error {
	const (
		batchBegin, batchEnd = 0x10, 0x11
		ofTables             = 10
		nameAttribute        = 1
	)
	table := nl.NewNetlinkRequest(ofTables<<8|message, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	table.AddRawData(append([]byte{unix.NFPROTO_IPV4, 0, 0, 0}, nl.NewRtAttr(nameAttribute, nl.ZeroTerminated("extra")).Serialize()...))
	var batch []byte
	for _, r := range []*nl.NetlinkRequest{batchOf(batchBegin, ofTables), table, batchOf(batchEnd, ofTables)} {
		batch = append(batch, r.Serialize()...)
	}
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := unix.Sendto(s.GetFd(), batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answers, _, err := s.Receive()
	if err != nil {
		return err
	}
	for _, a := range answers {
		if code := int32(nl.NativeEndian().Uint32(a.Data)); a.Header.Type == unix.NLMSG_ERROR && code != 0 {
			return unix.Errno(-code)
		}
	}
	return nil
}

func batchOf(message int, subsystem byte) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(message, 0)
	r.AddRawData([]byte{unix.AF_UNSPEC, 0, 0, subsystem}) // its number, big-endian
	return r
}

// hostNetwork reads the networks of the world's host and of this process.
func (w *world) hostNetwork() (both [2][]string) {
	w.t.Helper()
	var err error
	w.in(w.uplink, func() error {
		both[0], err = readNetwork()
		return err
	})
	w.must(onThread(func() error {
		both[1], err = readNetwork()
		return err
	}))
	return both
}

func (w *world) compare(when string, before [2][]string) {
	w.t.Helper()
	now := w.hostNetwork()
	for i, whose := range []string{"the host", "the daemon's own"} {
		if !slices.Equal(before[i], now[i]) {
			w.t.Errorf("%s: the network of %s differs:\n%s", when, whose, difference(before[i], now[i]))
		}
	}
}

func difference(before, after []string) string {
	var lines []string
	for _, l := range before {
		if !slices.Contains(after, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range after {
		if !slices.Contains(before, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return strings.Join(lines, "\n")
}

// readNetwork describes the network namespace of this thread, a line for each
// link, address, route, rule, sysctl and part of the firewall.
func readNetwork() ([]string, error) {
	var lines []string
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		a := l.Attrs()
		lines = append(lines, fmt.Sprintf("link %d %s %s %s mtu %d master %d", a.Index, a.Name, l.Type(), a.Flags, a.MTU, a.MasterIndex))
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, at := range addresses {
			lines = append(lines, fmt.Sprintf("address %s %s", a.Name, at.IPNet))
		}
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		lines = append(lines, "route "+r.String())
	}
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	for _, r := range rules {
		lines = append(lines, "rule "+r.String())
	}
	sysctls, err := readSysctls("/proc/sys/net/ipv4", "/proc/sys/net/ipv6")
	if err != nil {
		return nil, err
	}
	firewall, err := readFirewall()
	return slices.Concat(lines, sysctls, firewall), err
}

func readSysctls(roots ...string) (lines []string, err error) {
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			value, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EIO) { // written only, or never set
				value, err = []byte("unreadable"), nil
			}
			lines = append(lines, fmt.Sprintf("sysctl %s %s", path, strings.Join(strings.Fields(string(value)), " ")))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read sysctls: %w", err)
		}
	}
	return lines, nil
}

// readFirewall reads the rules of nftables, and which of the older tables there
// are.
func readFirewall() ([]string, error) {
	var lines []string
	for _, version := range []string{"ip", "ip6", "arp"} {
		names, err := os.ReadFile("/proc/thread-self/net/" + version + "_tables_names")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the firewall: %w", err)
		}
		lines = append(lines, "firewall "+version+" "+strings.Join(strings.Fields(string(names)), " "))
	}
	const nftables = 10
	for what, message := range map[string]int{"tables": 1, "chains": 4, "rules": 7, "sets": 10} {
		req := nl.NewNetlinkRequest(nftables<<8|message, unix.NLM_F_DUMP)
		req.AddRawData([]byte{unix.AF_UNSPEC, 0, 0, 0})
		entries, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil {
			return nil, fmt.Errorf("read the firewall's %s: %w", what, err)
		}
		for _, e := range entries {
			lines = append(lines, "firewall "+what+" "+hex.EncodeToString(e))
		}
	}
	slices.Sort(lines)
	return lines, nil
}
