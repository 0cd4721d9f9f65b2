package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"mediasandbox/daemon/api"
)

// SkillPath is the part of a request that names a skill.
type SkillPath struct {
	Skill string `path:"skill" maxLength:"64" doc:"The skill's name."`
}

func (s *server) routeSkills() {
	register(s, op("list-skills", http.MethodGet, "/v1/skills", "List the skills that the account's chats may have"),
		func(ctx context.Context, _ *none) ([]api.Skill, error) {
			return s.cfg.Engine.Skills().List(callerOf(ctx).account)
		})
	register(s, op("get-skill", http.MethodGet, "/v1/skills/{skill}", "Show a skill with its SKILL.md"),
		func(ctx context.Context, in *SkillPath) (api.SkillText, error) {
			return s.cfg.Engine.Skills().Get(callerOf(ctx).account, in.Skill)
		})
	registerEmpty(s, op("remove-skill", http.MethodDelete, "/v1/skills/{skill}", "Remove one of the account's own skills"),
		func(ctx context.Context, in *SkillPath) error {
			return s.cfg.Engine.Skills().Remove(callerOf(ctx).account, in.Skill)
		})
	register(s, op("set-skills", http.MethodPut, "/v1/chats/{chat}/skills", "Say which skills a chat has, from now on and in its live sandbox"),
		func(ctx context.Context, in *struct {
			ChatPath
			Body api.ActiveSkills
		}) (api.Chat, error) {
			return s.cfg.Engine.SetSkills(in.key(ctx), in.Body.Skills)
		})
	answer := reflect.TypeFor[api.Skill]()
	s.routeRaw(op("import-skill", http.MethodPut, "/v1/skills/{skill}", "Import a skill, whole or not at all; the body is a tar archive of its folder"), nil, answer, s.importSkill)
	s.routeRaw(op("check-skill", http.MethodPost, "/v1/skills/{skill}/check", "Judge a skill without keeping it; the body is a tar archive of its folder"), nil, answer, s.checkSkill)
}

func (s *server) importSkill(w http.ResponseWriter, r *http.Request) {
	skill, err := s.cfg.Engine.Skills().Import(callerOf(r.Context()).account, r.PathValue("skill"), r.Body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, skill)
}

func (s *server) checkSkill(w http.ResponseWriter, r *http.Request) {
	skill, err := s.cfg.Engine.Skills().Check(r.PathValue("skill"), r.Body)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, r, skill)
}
