package httpapi

import (
	"context"
	"net/http"

	"mediasandbox/daemon/api"
)

func (s *server) routeNetwork() {
	register(s, op("get-network", http.MethodGet, "/v1/chats/{chat}/network", "Show what a chat's sandboxes may reach, and what they moved"),
		func(ctx context.Context, in *ChatPath) (api.Network, error) {
			return s.cfg.Engine.Network(ctx, in.key(ctx))
		})
	register(s, op("set-network", http.MethodPatch, "/v1/chats/{chat}/network", "Change what a chat's sandboxes may reach; it is in force when this answers, and open flows that it denies are cut off"),
		func(ctx context.Context, in *struct {
			ChatPath
			Body api.NetworkSettings
		}) (api.Network, error) {
			return s.cfg.Engine.SetNetwork(ctx, in.key(ctx), in.Body)
		})
	register(s, op("list-flows", http.MethodGet, "/v1/chats/{chat}/network/flows", "List the flows of a chat's live sandbox, and what was refused with the rule that did it"),
		func(ctx context.Context, in *ChatPath) (api.NetworkFlows, error) {
			return s.cfg.Engine.NetworkFlows(ctx, in.key(ctx))
		})
	register(s, op("test-network", http.MethodPost, "/v1/chats/{chat}/network/test", "Say what would become of a flow, and why; nothing is sent"),
		func(ctx context.Context, in *struct {
			ChatPath
			Body api.NetworkTest
		}) (api.NetworkVerdict, error) {
			return s.cfg.Engine.TestNetwork(in.key(ctx), in.Body)
		})
}
