package process

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"mediasandbox/runtime/gate/policy"
)

// query is a question of the guest's that is in order.
type query struct {
	msg      *dns.Msg
	question dns.Question
	// name is the question's, as the policy compares names.
	name string
	// limit is the longest reply over UDP, in bytes.
	limit int
	// edns says that the guest speaks EDNS, and so gets it back.
	edns bool
	// service is set for a name of the operator's services.
	service bool
	// refused collects what the policy did to the answer.
	refused []refusedName
}

type refusedName struct {
	addr netip.Addr
	rule string
}

// How question types are dealt with: those not in the table are not
// implemented.
var questionTypes = map[uint16]bool{
	dns.TypeA: true, dns.TypeAAAA: true, dns.TypeCNAME: true, dns.TypeNS: true, dns.TypeSOA: true,
	dns.TypePTR: true, dns.TypeMX: true, dns.TypeTXT: true, dns.TypeSRV: true, dns.TypeNAPTR: true, dns.TypeCAA: true,
	// These carry addresses as hints. Clients do well without.
	dns.TypeHTTPS: false, dns.TypeSVCB: false,
}

// maxRecords bounds the records of an answer.
const maxRecords = 256

// readQuery reads what the guest sent. It returns the query to be asked; or
// with it a reply that needs no asking; or only a reply, which may be nil, to
// something that is no query.
func readQuery(raw []byte, p policy.Policy) (*query, *dns.Msg) {
	m := new(dns.Msg)
	if err := m.Unpack(raw); err != nil {
		return nil, refuseUnread(raw, dns.RcodeFormatError)
	}
	if m.Response {
		return nil, nil
	}
	if m.Opcode != dns.OpcodeQuery {
		return nil, refuseUnread(raw, dns.RcodeNotImplemented)
	}
	if len(m.Question) != 1 || len(m.Answer) > 0 || len(m.Ns) > 0 {
		return nil, refuseUnread(raw, dns.RcodeFormatError)
	}
	q := &query{msg: m, question: m.Question[0], limit: dns.MinMsgSize}
	q.name = strings.ToLower(strings.TrimSuffix(q.question.Name, "."))
	if opt := m.IsEdns0(); opt != nil {
		q.edns = true
		q.limit = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxReply)
		if opt.Version() != 0 {
			return q, q.reply(dns.RcodeBadVers)
		}
	}
	return q, q.judge(p)
}

// judge holds the question against the policy. It returns nil when it is to be
// asked, and the reply otherwise. What is refused is not asked at all: a
// question can carry a secret out as well as an answer can bring one in.
func (q *query) judge(p policy.Policy) *dns.Msg {
	forward, known := questionTypes[q.question.Qtype]
	switch {
	case q.question.Qclass != dns.ClassINET || !known:
		return q.reply(dns.RcodeNotImplemented)
	case strings.Contains(q.question.Name, `\`):
		// The library escapes what no host name has: dots inside labels, NUL,
		// blanks, bytes above ASCII. IDN is ASCII by the time it gets here.
		return q.refuse(netip.Addr{}, policy.RuleDNSName)
	}
	if _, v, ok := p.Service(policy.Flow{Name: q.name}); ok {
		if !v.Allow {
			return q.refuse(netip.Addr{}, v.Rule)
		}
		q.service = true
		return q.reply(dns.RcodeSuccess)
	}
	if v := p.Could(policy.Flow{Name: q.name}); !v.Allow {
		return q.refuse(netip.Addr{}, v.Rule)
	}
	if !forward {
		return q.reply(dns.RcodeSuccess)
	}
	if addr, ok := reverseName(q.question.Name); ok {
		// Names of the inside are the inside's business.
		if v := p.Address(addr); !v.Allow {
			return q.refuse(addr, v.Rule)
		}
	}
	return nil
}

// refuse says that there is no such name, which ends a lookup at once where
// 'refused' would have it tried again.
func (q *query) refuse(addr netip.Addr, rule string) *dns.Msg {
	q.refused = append(q.refused, refusedName{addr, rule})
	return q.reply(dns.RcodeNameError)
}

// reply returns an empty reply to the query.
func (q *query) reply(rcode int) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q.msg)
	m.Question = []dns.Question{q.question}
	m.RecursionAvailable = true
	m.Compress = true
	if q.edns {
		m.SetEdns0(maxReply, false)
	}
	m.Rcode = rcode
	return m
}

// upstream returns the query as the host's resolver is asked it. It is made
// anew: nothing else of what the guest sent leaves the host.
func (q *query) upstream() *dns.Msg {
	m := new(dns.Msg)
	m.Id = dns.Id()
	m.RecursionDesired = true
	m.Question = []dns.Question{q.question}
	m.SetEdns0(maxReply, false)
	return m
}

// answeredBy says whether in is a reply to out.
func (q *query) answeredBy(out, in *dns.Msg) bool {
	if in.Id != out.Id || !in.Response || len(in.Question) != 1 {
		return false
	}
	a, b := out.Question[0], in.Question[0]
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

// filter returns the reply to the guest, made from the resolver's. Addresses
// that the policy denies are left out; if that leaves none, there is no such
// name. IPv6 addresses are left out without a word: the guest has no IPv6.
func (q *query) filter(from *dns.Msg, p policy.Policy) *dns.Msg {
	m := q.reply(from.Rcode)
	if from.Rcode != dns.RcodeSuccess && from.Rcode != dns.RcodeNameError {
		m.Rcode = dns.RcodeServerFailure
	}
	left := 0
	for _, rr := range from.Answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || !questionTypes[h.Rrtype] || len(m.Answer) >= maxRecords {
			continue
		}
		switch rr := rr.(type) {
		case *dns.AAAA:
			continue
		case *dns.A:
			addr, ok := netip.AddrFromSlice(rr.A)
			if !ok {
				continue // a record without its address
			}
			addr = addr.Unmap()
			if v := p.Could(policy.Flow{Name: q.name, Addr: addr}); !v.Allow {
				q.refused = append(q.refused, refusedName{addr, v.Rule})
				continue
			}
			left++
		}
		m.Answer = append(m.Answer, rr)
	}
	if len(q.refused) > 0 && left == 0 {
		m.Answer = nil
		m.Rcode = dns.RcodeNameError
		return m
	}
	for _, rr := range from.Ns {
		if soa, ok := rr.(*dns.SOA); ok && len(m.Ns) == 0 {
			m.Ns = append(m.Ns, soa)
		}
	}
	return m
}

// addresses takes the addresses out of a reply, with the shortest time that
// they hold.
func addresses(m *dns.Msg) (list []netip.Addr, ttl time.Duration) {
	ttl = ttlCeiling
	for _, rr := range m.Answer {
		ttl = min(ttl, time.Duration(rr.Header().Ttl)*time.Second)
		if a, ok := rr.(*dns.A); ok {
			if addr, ok := netip.AddrFromSlice(a.A); ok && len(list) < maxAddresses {
				list = append(list, addr.Unmap())
			}
		}
	}
	return list, ttl
}

// maxAddresses bounds how many of a name's addresses are kept.
const maxAddresses = 16

// standIn puts one address in the place of all in a reply. A chain of aliases
// goes with them: the name that was asked for is what the rule is about.
func (q *query) standIn(m *dns.Msg, addr netip.Addr, ttl time.Duration) {
	m.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: q.question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: uint32(max(ttl/time.Second, 1))},
		A:   addr.AsSlice(),
	}}
}

// withoutAddresses drops what an answer to another question says of addresses.
func withoutAddresses(m *dns.Msg) {
	m.Answer = slices.DeleteFunc(m.Answer, func(rr dns.RR) bool { _, ok := rr.(*dns.A); return ok })
}

// pack returns a message's bytes, cut to limit if that is not 0, or nil when
// there is nothing to say.
func pack(m *dns.Msg, limit int) []byte {
	if m == nil {
		return nil
	}
	if limit > 0 {
		m.Truncate(limit)
	}
	b, err := m.Pack()
	if err == nil && len(b) <= dns.MaxMsgSize {
		return b
	}
	// What can't be packed came from the resolver.
	fail := &dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Rcode: dns.RcodeServerFailure}}
	if b, err = fail.Pack(); err != nil {
		return nil
	}
	return b
}

// refuseUnread replies to a message of which only the header can be relied on.
func refuseUnread(raw []byte, rcode int) *dns.Msg {
	const headerSize = 12
	if len(raw) < headerSize || raw[2]&0x80 != 0 {
		return nil
	}
	return &dns.Msg{MsgHdr: dns.MsgHdr{
		Id: uint16(raw[0])<<8 | uint16(raw[1]), Response: true, Opcode: int(raw[2]>>3) & 0xf, Rcode: rcode,
	}}
}

// refuseBusy replies to a query that there is no room for.
func refuseBusy(raw []byte) []byte { return pack(refuseUnread(raw, dns.RcodeServerFailure), 0) }

// reverseName returns the address that a name of the reverse tree stands for.
func reverseName(name string) (netip.Addr, bool) {
	name = strings.ToLower(name)
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		labels := strings.Split(rest, ".")
		if len(labels) != 4 {
			return netip.Addr{}, false
		}
		var b [4]byte
		for i, l := range labels {
			n, err := strconv.ParseUint(l, 10, 8)
			if err != nil {
				return netip.Addr{}, false
			}
			b[3-i] = byte(n)
		}
		return netip.AddrFrom4(b), true
	}
	rest, ok := strings.CutSuffix(name, ".ip6.arpa.")
	labels := strings.Split(rest, ".")
	if !ok || len(labels) != 32 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i, l := range labels {
		n, err := strconv.ParseUint(l, 16, 4)
		if err != nil || len(l) != 1 {
			return netip.Addr{}, false
		}
		at := 31 - i
		b[at/2] |= byte(n) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(b), true
}
