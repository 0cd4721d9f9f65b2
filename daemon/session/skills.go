package session

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"mediasandbox/daemon/api"
)

// Skills are the skills that chats may have: the built-in ones, and those that
// accounts brought. Errors about what a caller gave are the API's.
type Skills interface {
	// List returns the skills of an account, by name.
	List(account string) ([]api.Skill, error)
	// Get returns one of them with its SKILL.md.
	Get(account, name string) (api.SkillText, error)
	// Import takes a skill from a tar archive, whole or not at all, and
	// replaces the account's own of that name. Check only judges it.
	Import(account, name string, archive io.Reader) (api.Skill, error)
	Check(name string, archive io.Reader) (api.Skill, error)
	// Remove removes one of the account's own.
	Remove(account, name string) error
	// Lay makes a directory hold just these skills; nil means all built-in
	// ones. What is there and stays is not touched.
	Lay(dir, account string, names []string) error
}

// Skills returns the skills that chats may have.
func (e *Engine) Skills() Skills { return e.cfg.Skills }

// SetSkills says which skills a chat has, from now on and in its live sandbox.
func (e *Engine) SetSkills(key ChatKey, names []string) (api.Chat, error) {
	if _, err := e.chatRecord(key); err != nil {
		return api.Chat{}, err
	}
	if names != nil {
		// Not nil when empty: none is another wish than the built-in ones.
		names = append([]string{}, slices.Compact(slices.Sorted(slices.Values(names)))...)
	}
	for _, name := range names {
		if _, err := e.cfg.Skills.Get(key.Account, name); err != nil {
			return api.Chat{}, err
		}
	}
	var rec ChatRecord
	err := e.cfg.Store.Update(func(tx Tx) (err error) {
		if rec, err = tx.Chat(key); err != nil {
			return err
		}
		rec.Skills = names
		return tx.PutChat(rec)
	})
	if err != nil {
		return api.Chat{}, err
	}
	if l := e.liveOf(key); l != nil {
		if err := e.laySkills(l.record.Spec.Disk, rec); err != nil {
			return api.Chat{}, err
		}
	}
	return e.wireChat(rec), nil
}

// activeSkills are the names that a chat shows.
func (e *Engine) activeSkills(chat ChatRecord) []string {
	if chat.Skills != nil {
		return chat.Skills
	}
	return e.builtinSkills
}

// laySkills makes /skills of a sandbox what the chat asks for. A skill that was
// removed since is left out.
func (e *Engine) laySkills(disk string, chat ChatRecord) error {
	names := chat.Skills
	if names != nil {
		all, err := e.cfg.Skills.List(chat.Account)
		if err != nil {
			return fmt.Errorf("lay out the skills of chat %s: %w", chat.Key(), err)
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return !slices.ContainsFunc(all, func(s api.Skill) bool { return s.Name == name })
		})
	}
	if err := e.cfg.Skills.Lay(filepath.Join(disk, "skills"), chat.Account, names); err != nil {
		return fmt.Errorf("lay out the skills of chat %s: %w", chat.Key(), err)
	}
	return nil
}

func (e *Engine) laySkillsOf(disk string, key ChatKey) error {
	chat, err := e.chatRecord(key)
	if err != nil {
		return err
	}
	return e.laySkills(disk, chat)
}

// nameBuiltinSkills reads the names of the built-in skills, once.
func nameBuiltinSkills(s Skills) ([]string, error) {
	all, err := s.List("")
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, skill := range all {
		if skill.Builtin {
			names = append(names, skill.Name)
		}
	}
	return names, nil
}
