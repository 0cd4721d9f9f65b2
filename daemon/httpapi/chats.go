package httpapi

import (
	"context"
	"net/http"

	"mediasandbox/daemon/api"
)

func (s *server) routeChats() {
	register(s, op("info", http.MethodGet, "/v1/info", "What this daemon is and allows"),
		func(ctx context.Context, _ *none) (api.Info, error) {
			info := s.cfg.Info()
			c := callerOf(ctx)
			info.Account, info.Operator = c.account, c.operator
			info.Usage = s.cfg.Engine.Usage()
			return info, nil
		})
	register(s, op("list-sandboxes", http.MethodGet, "/v1/sandboxes", "List the account's live sandboxes with what they use"),
		func(ctx context.Context, in *struct {
			All bool `query:"all" doc:"Of all accounts; for operators."`
		}) ([]api.SandboxUsage, error) {
			c := callerOf(ctx)
			if !in.All {
				return s.cfg.Engine.Sandboxes(ctx, c.account)
			}
			if !c.operator {
				return nil, api.Errorf(api.CodeForbidden, "only operators see the sandboxes of all accounts")
			}
			return s.cfg.Engine.Sandboxes(ctx, "")
		})
	register(s, op("create-chat", http.MethodPost, "/v1/chats", "Make a chat"),
		func(ctx context.Context, in *body[api.NewChat]) (api.Chat, error) {
			return s.cfg.Engine.CreateChat(callerOf(ctx).account, in.Body)
		})
	register(s, op("list-chats", http.MethodGet, "/v1/chats", "List the account's chats"),
		func(ctx context.Context, _ *none) ([]api.Chat, error) {
			return s.cfg.Engine.Chats(callerOf(ctx).account)
		})
	register(s, op("get-chat", http.MethodGet, "/v1/chats/{chat}", "Show a chat"),
		func(ctx context.Context, in *ChatPath) (api.Chat, error) {
			return s.cfg.Engine.Chat(in.key(ctx))
		})
	register(s, op("open-turn", http.MethodPost, "/v1/chats/{chat}/turns", "Open the chat's next turn, which closes the one before it"),
		func(ctx context.Context, in *struct {
			ChatPath
			Body api.NewTurn
		}) (api.Turn, error) {
			return s.cfg.Engine.OpenTurn(in.key(ctx), in.Body)
		})
	register(s, op("list-turns", http.MethodGet, "/v1/chats/{chat}/turns", "List a chat's turns, the open one last"),
		func(ctx context.Context, in *ChatPath) ([]api.Turn, error) {
			return s.cfg.Engine.Turns(in.key(ctx))
		})
	register(s, op("change-chat", http.MethodPatch, "/v1/chats/{chat}", "Change a chat's title and retention"),
		func(ctx context.Context, in *struct {
			ChatPath
			Body api.ChangeChat
		}) (api.Chat, error) {
			return s.cfg.Engine.ChangeChat(in.key(ctx), in.Body)
		})
	register(s, op("get-settings", http.MethodGet, "/v1/settings", "Show the account's settings"),
		func(ctx context.Context, _ *none) (api.Settings, error) {
			return s.cfg.Engine.Settings(callerOf(ctx).account)
		})
	register(s, op("change-settings", http.MethodPatch, "/v1/settings", "Change the account's settings"),
		func(ctx context.Context, in *body[api.ChangeSettings]) (api.Settings, error) {
			return s.cfg.Engine.ChangeSettings(callerOf(ctx).account, in.Body)
		})
	registerEmpty(s, op("delete-chat", http.MethodDelete, "/v1/chats/{chat}", "Delete a chat with its sandbox, records and files"),
		func(ctx context.Context, in *ChatPath) error {
			return s.cfg.Engine.DeleteChat(ctx, in.key(ctx))
		})
}
