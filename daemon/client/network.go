package client

import (
	"context"
	"net/http"

	"mediasandbox/daemon/api"
)

// Network shows what a chat's sandboxes may reach.
func (c *Client) Network(ctx context.Context, chat string) (api.Network, error) {
	return call[api.Network](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "network"}}, nil)
}

// SetNetwork changes what a chat's sandboxes may reach.
func (c *Client) SetNetwork(ctx context.Context, chat string, set api.NetworkSettings) (api.Network, error) {
	return call[api.Network](ctx, c, request{method: http.MethodPatch, path: []string{"chats", chat, "network"}}, set)
}

// Flows lists the flows of a chat's live sandbox.
func (c *Client) Flows(ctx context.Context, chat string) (api.NetworkFlows, error) {
	return call[api.NetworkFlows](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "network", "flows"}}, nil)
}

// TestNetwork says what would become of a flow.
func (c *Client) TestNetwork(ctx context.Context, chat string, flow api.NetworkTest) (api.NetworkVerdict, error) {
	return call[api.NetworkVerdict](ctx, c, request{method: http.MethodPost, path: []string{"chats", chat, "network", "test"}}, flow)
}
