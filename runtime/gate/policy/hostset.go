package policy

import (
	"net/netip"
	"slices"
)

// HostSet is the addresses that lead to the host itself.
type HostSet struct {
	addrs    map[netip.Addr]struct{}
	prefixes []netip.Prefix
}

// NewHostSet returns the set of those prefixes. Single addresses are looked
// up in constant time.
func NewHostSet(prefixes []netip.Prefix) HostSet {
	s := HostSet{addrs: make(map[netip.Addr]struct{}, len(prefixes))}
	for _, p := range prefixes {
		if !p.IsValid() {
			continue
		}
		p = unmapPrefix(p).Masked()
		if p.IsSingleIP() {
			s.addrs[p.Addr()] = struct{}{}
			continue
		}
		if !slices.Contains(s.prefixes, p) {
			s.prefixes = append(s.prefixes, p)
		}
	}
	return s
}

// Contains says whether addr is the host's. It takes addresses as Address
// normalises them: no zone, not IPv4-mapped.
func (s HostSet) Contains(addr netip.Addr) bool {
	if _, ok := s.addrs[addr]; ok {
		return true
	}
	for _, p := range s.prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Len counts the entries.
func (s HostSet) Len() int { return len(s.addrs) + len(s.prefixes) }

func unmapPrefix(p netip.Prefix) netip.Prefix {
	addr := p.Addr().WithZone("")
	if addr.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(addr.Unmap(), p.Bits()-96)
	}
	return netip.PrefixFrom(addr, p.Bits())
}
