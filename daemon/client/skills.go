package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"mediasandbox/daemon/api"
)

// Skills returns the skills that the account's chats may have.
func (c *Client) Skills(ctx context.Context) ([]api.Skill, error) {
	return call[[]api.Skill](ctx, c, request{method: http.MethodGet, path: []string{"skills"}}, nil)
}

// Skill returns a skill with its SKILL.md.
func (c *Client) Skill(ctx context.Context, name string) (api.SkillText, error) {
	return call[api.SkillText](ctx, c, request{method: http.MethodGet, path: []string{"skills", name}}, nil)
}

// RemoveSkill removes one of the account's own skills.
func (c *Client) RemoveSkill(ctx context.Context, name string) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodDelete, path: []string{"skills", name}}, nil)
	return err
}

// SetSkills says which skills a chat has; nil means all built-in ones.
func (c *Client) SetSkills(ctx context.Context, chat string, names []string) (api.Chat, error) {
	return call[api.Chat](ctx, c, request{method: http.MethodPut, path: []string{"chats", chat, "skills"}}, api.ActiveSkills{Skills: names})
}

// ImportSkill imports a skill from a tar archive of its folder, whole or not at
// all, and replaces the account's own of that name.
func (c *Client) ImportSkill(ctx context.Context, name string, archive io.Reader) (api.Skill, error) {
	var skill api.Skill
	res, err := c.do(ctx, request{method: http.MethodPut, path: []string{"skills", name}, body: io.NopCloser(archive)})
	if err != nil {
		return skill, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&skill); err != nil {
		return skill, fmt.Errorf("decode the daemon's answer: %w", err)
	}
	return skill, nil
}
