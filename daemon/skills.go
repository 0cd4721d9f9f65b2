package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"mediasandbox/daemon/api"
	"mediasandbox/skills"
)

// skillShelf is the skill library as the session engine wants it.
type skillShelf struct{ library *skills.Library }

func wireSkill(s skills.Skill) api.Skill {
	return api.Skill{
		Name: s.Name, Description: s.Description, License: s.License, Compatibility: s.Compatibility,
		Metadata: s.Metadata, AllowedTools: s.AllowedTools, Builtin: s.Builtin, Files: s.Files, Size: s.Size,
	}
}

// skillError turns what a caller did wrong into an error of the API.
func skillError(name string, err error) error {
	var problems skills.Problems
	switch {
	case errors.Is(err, skills.ErrUnknown):
		return api.Errorf(api.CodeSkillNotFound, "there is no skill %q", name).WithHint("`sandboxctl skills list` shows what there is")
	case errors.As(err, &problems):
		return api.Errorf(api.CodeSkillInvalid, "skill %q is not valid:\n%v", name, problems).
			WithHint("mend it, and try `sandboxctl skills validate DIR`")
	}
	return err
}

func (s skillShelf) List(account string) ([]api.Skill, error) {
	all, err := s.library.List(account)
	if err != nil {
		return nil, err
	}
	wire := make([]api.Skill, len(all))
	for i, skill := range all {
		wire[i] = wireSkill(skill)
	}
	return wire, nil
}

func (s skillShelf) Get(account, name string) (api.SkillText, error) {
	skill, folder, err := s.library.Get(account, name)
	if err != nil {
		return api.SkillText{}, skillError(name, err)
	}
	text, err := fs.ReadFile(folder, skills.File)
	if err != nil {
		return api.SkillText{}, fmt.Errorf("read skill %s: %w", name, err)
	}
	return api.SkillText{Skill: wireSkill(skill), Text: string(text)}, nil
}

func (s skillShelf) Import(account, name string, archive io.Reader) (api.Skill, error) {
	skill, err := s.library.Import(account, name, archive)
	return wireSkill(skill), skillError(name, err)
}

func (s skillShelf) Check(name string, archive io.Reader) (api.Skill, error) {
	skill, err := s.library.Check(name, archive)
	return wireSkill(skill), skillError(name, err)
}

func (s skillShelf) Remove(account, name string) error {
	return skillError(name, s.library.Remove(account, name))
}

func (s skillShelf) Lay(dir, account string, names []string) error {
	return s.library.Lay(dir, account, names)
}
