package api

// Skill is an Agent Skills folder that an account may activate in its chats.
type Skill struct {
	Name          string            `json:"name"`
	Description   string            `json:"description" doc:"What it does and when to use it."`
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	AllowedTools  []string          `json:"allowed_tools,omitempty"`
	Builtin       bool              `json:"builtin" doc:"It comes with the product; others are the account's own."`
	Files         []string          `json:"files" doc:"Paths within the folder, SKILL.md first."`
	Size          int64             `json:"size" doc:"Of all files, in bytes."`
}

// SkillText is a skill with its SKILL.md.
type SkillText struct {
	Skill
	Text string `json:"text" doc:"SKILL.md."`
}

// ActiveSkills says which skills a chat has.
type ActiveSkills struct {
	Skills []string `json:"skills" nullable:"true" maxItems:"100" doc:"Names; null for all built-in ones, which is how a chat begins."`
}
