// Package hostaddr reads which addresses are the host's own, for the gate that
// denies them and for the daemon that tells what a gate would do.
package hostaddr

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mediasandbox/runtime/gate/policy"
)

// Read returns the addresses of the handle's network namespace as they are
// now: those of its interfaces, and whatever else its local table delivers to
// itself.
func Read(handle *netlink.Handle) (policy.HostSet, error) {
	var prefixes []netip.Prefix
	add := func(ip []byte, ones int) {
		if a, ok := netip.AddrFromSlice(ip); ok {
			if a.Is4In6() && ones <= 32 {
				a = a.Unmap()
			}
			prefixes = append(prefixes, netip.PrefixFrom(a, ones))
		}
	}
	addrs, err := handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return policy.HostSet{}, fmt.Errorf("read the host's addresses: %w", err)
	}
	for _, a := range addrs {
		_, bits := a.Mask.Size()
		add(a.IP, bits)
		if a.Broadcast != nil {
			add(a.Broadcast, 32)
		}
	}
	routes, err := handle.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return policy.HostSet{}, fmt.Errorf("read the host's local table: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil || (r.Type != unix.RTN_LOCAL && r.Type != unix.RTN_BROADCAST && r.Type != unix.RTN_ANYCAST) {
			continue
		}
		ones, _ := r.Dst.Mask.Size()
		add(r.Dst.IP, ones)
	}
	return policy.NewHostSet(prefixes), nil
}
