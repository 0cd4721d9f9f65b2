package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"mediasandbox/runtime/gate/policy"
)

// Bounds of the resolver.
const (
	// maxQuery is the longest query in bytes. Real ones are below 300.
	maxQuery = 2048
	// maxReply bounds a reply over UDP, whatever the guest says it can take.
	maxReply = 4096
	// dnsConns bounds the guest's TCP connections to the resolver.
	dnsConns = 64
	// dnsPatience is how long a TCP connection may be silent.
	dnsPatience = 10 * time.Second
	// perResolver and perQuery bound the wait for the host's resolvers. A
	// guest's own resolver library gives up after five seconds.
	perResolver = 2 * time.Second
	perQuery    = 4500 * time.Millisecond
)

// dnsServer answers the guest's queries at the gate's address.
type dnsServer struct {
	gate     *gate
	udp      *gonet.UDPConn
	tcp      *gonet.TCPListener
	queries  chan struct{}
	tcpConns chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (s *dnsServer) init(g *gate) {
	s.gate = g
	s.queries = make(chan struct{}, g.limits.Queries)
	s.tcpConns = make(chan struct{}, dnsConns)
	s.conns = make(map[net.Conn]struct{})
}

func (s *dnsServer) listen() error {
	addr := gatePort(dnsPort)
	var err error
	if s.udp, err = gonet.DialUDP(s.gate.stack, &addr, nil, ipv4.ProtocolNumber); err != nil {
		return fmt.Errorf("listen for DNS over UDP: %w", err)
	}
	if s.tcp, err = gonet.ListenTCP(s.gate.stack, addr, ipv4.ProtocolNumber); err != nil {
		return fmt.Errorf("listen for DNS over TCP: %w", err)
	}
	s.gate.goWork(s.serveUDP)
	s.gate.goWork(s.serveTCP)
	return nil
}

// close ends the listeners and connections. Their errors say that they were
// closed.
func (s *dnsServer) close() {
	if s.udp != nil {
		_ = s.udp.Close()
	}
	if s.tcp != nil {
		_ = s.tcp.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *dnsServer) serveUDP() {
	buf := make([]byte, maxQuery)
	for {
		n, from, err := s.udp.ReadFrom(buf)
		if err != nil {
			if s.gate.ctx.Err() != nil {
				return
			}
			// What ReadFrom reports on an open socket is an error the guest
			// provoked, and is about one datagram.
			continue
		}
		query := append([]byte(nil), buf[:n]...)
		reply := func(b []byte) {
			// A reply that can't be sent is a reply lost.
			_, _ = s.udp.WriteTo(b, from)
		}
		select {
		case s.queries <- struct{}{}:
		default:
			if b := refuseBusy(query); b != nil {
				reply(b)
			}
			continue
		}
		s.gate.goWork(func() {
			defer func() { <-s.queries }()
			if b := s.answer(query, true); b != nil {
				reply(b)
			}
		})
	}
}

func (s *dnsServer) serveTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		select {
		case s.tcpConns <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		s.gate.goWork(func() {
			defer func() { <-s.tcpConns }()
			s.serveConn(conn)
		})
	}
}

// serveConn answers queries in order until the guest goes or is silent.
func (s *dnsServer) serveConn(conn net.Conn) {
	s.mu.Lock()
	s.conns[conn] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		_ = conn.Close()
	}()
	for s.gate.ctx.Err() == nil {
		if err := conn.SetDeadline(time.Now().Add(dnsPatience)); err != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxQuery {
			return
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply := s.answer(query, false)
		if reply == nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(reply)))
		if _, err := conn.Write(append(framed, reply...)); err != nil {
			return
		}
	}
}

// answer returns the reply to a query, or nil when there must be none.
func (s *dnsServer) answer(raw []byte, overUDP bool) []byte {
	s.gate.meter.queries.Add(1)
	p := *s.gate.policy.Load()
	q, reply := readQuery(raw, p)
	if q == nil {
		return pack(reply, 0)
	}
	limit := 0
	if overUDP {
		limit = q.limit
	}
	if reply == nil {
		ctx, cancel := context.WithTimeout(s.gate.ctx, perQuery)
		defer cancel()
		if from, err := s.ask(ctx, q); err != nil {
			reply = q.reply(dns.RcodeServerFailure)
		} else {
			reply = q.filter(from, p)
		}
	}
	s.name(q, reply, p)
	for _, r := range q.refused {
		s.gate.logRefusal("dns", netip.AddrPortFrom(r.addr, 0), strings.TrimSuffix(q.question.Name, "."), r.rule)
	}
	return pack(reply, limit)
}

// name makes sure that the gate knows a name again by the address it is about
// to hand out for it. Where the policy looks at names, the guest gets an
// address that stands for this one.
func (s *dnsServer) name(q *query, reply *dns.Msg, p policy.Policy) {
	book := s.gate.book
	isA := q.question.Qtype == dns.TypeA
	if q.service {
		if isA {
			q.standIn(reply, book.give(q.name, nil, ttlCeiling), ttlFloor)
		}
		return
	}
	real, ttl := addresses(reply)
	switch {
	case len(real) == 0:
	case !p.ByName(q.name):
		for _, addr := range real {
			book.see(q.name, addr)
		}
	case isA:
		q.standIn(reply, book.give(q.name, real, ttl), min(ttl, ttlFloor))
	default:
		withoutAddresses(reply)
	}
}

// resolve asks for the addresses of a name that was allowed once, and returns
// those that the policy allows still.
func (s *dnsServer) resolve(ctx context.Context, name string) ([]netip.Addr, time.Duration, error) {
	select {
	case s.queries <- struct{}{}:
		defer func() { <-s.queries }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, perQuery)
	defer cancel()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	q := &query{msg: m, question: m.Question[0], name: name}
	from, err := s.ask(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	if from.Rcode != dns.RcodeSuccess && from.Rcode != dns.RcodeNameError {
		return nil, 0, fmt.Errorf("ask for %s: the resolver answers %s", name, dns.RcodeToString[from.Rcode])
	}
	reply := q.filter(from, *s.gate.policy.Load())
	for _, r := range q.refused {
		s.gate.logRefusal("dns", netip.AddrPortFrom(r.addr, 0), name, r.rule)
	}
	list, ttl := addresses(reply)
	return list, ttl, nil
}

// ask puts a question to the host's resolvers, in order, until one knows.
func (s *dnsServer) ask(ctx context.Context, q *query) (*dns.Msg, error) {
	var last *dns.Msg
	errs := []error{errors.New("the host has no resolver")}
	for _, server := range *s.gate.resolvers.Load() {
		m, err := exchange(ctx, server, q)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError {
			return m, nil
		}
		last = m
	}
	if last != nil {
		return last, nil
	}
	return nil, fmt.Errorf("ask for %s: %w", q.question.Name, errors.Join(errs...))
}

// exchange asks one server, over UDP first. The gate may ask any address: the
// host's administrator chose it.
func exchange(ctx context.Context, server netip.AddrPort, q *query) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, perResolver)
	defer cancel()
	m, err := exchangeOver(ctx, "udp", server, q)
	if err == nil && m.Truncated {
		return exchangeOver(ctx, "tcp", server, q)
	}
	return m, err
}

func exchangeOver(ctx context.Context, network string, server netip.AddrPort, q *query) (*dns.Msg, error) {
	// The family is in the network's name so that the net package does not
	// try out, with a bind, which families there are.
	network += "6"
	if server.Addr().Unmap().Is4() {
		network = strings.TrimSuffix(network, "6") + "4"
	}
	var d net.Dialer
	raw, err := d.DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	conn := &dns.Conn{Conn: raw, UDPSize: maxReply}
	// The exchange is over when it returns, whatever closing says.
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	out := q.upstream()
	if err := conn.WriteMsg(out); err != nil {
		return nil, err
	}
	for {
		in, err := conn.ReadMsg()
		switch {
		case err == nil && q.answeredBy(out, in):
			return in, nil
		case err != nil && (in == nil || network[:3] == "tcp"):
			return nil, err
		}
		// Not the reply to this query: keep listening until the deadline.
	}
}
