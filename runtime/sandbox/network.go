package sandbox

import (
	"context"
	"fmt"
	"net/netip"
)

// NetworkMode is the default a sandbox's traffic meets.
type NetworkMode string

// The modes.
const (
	// NetworkPublic allows public addresses and nothing else.
	NetworkPublic NetworkMode = "public"
	// NetworkNone allows nothing.
	NetworkNone NetworkMode = "none"
)

// ParseNetworkMode returns the mode of that name; the empty name is public.
func ParseNetworkMode(s string) (NetworkMode, error) {
	switch m := NetworkMode(s); m {
	case "":
		return NetworkPublic, nil
	case NetworkPublic, NetworkNone:
		return m, nil
	}
	return "", fmt.Errorf("network mode %q is not known: use %q or %q", s, NetworkPublic, NetworkNone)
}

// NetworkPolicy says what a sandbox may reach.
type NetworkPolicy struct {
	Mode NetworkMode `json:"mode"`
}

// Network gives a sandbox the only network it has.
type Network interface {
	// Attach makes the network of sandbox id. When it returns an error
	// nothing of it is left.
	Attach(ctx context.Context, id string, policy NetworkPolicy) (Attachment, error)
	// Detach removes everything that Attach made for id, also when an
	// earlier daemon made it. It is no error when nothing is there.
	Detach(ctx context.Context, id string) error
	// Attached names every sandbox of which a network is left.
	Attached(ctx context.Context) ([]string, error)
}

// Attachment is where a sandbox finds its network.
type Attachment struct {
	// Namespace is the path of the network namespace that runsc joins.
	Namespace string
	// Resolver answers the guest's DNS queries.
	Resolver netip.Addr
}
