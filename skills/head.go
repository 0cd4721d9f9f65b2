package skills

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// headOffset is the number of lines before the head: the opening ---.
const headOffset = 1

// fields are what the format allows in a head.
var fields = []string{"name", "description", "license", "compatibility", "metadata", "allowed-tools"}

// head checks the frontmatter of SKILL.md and takes the skill's fields from it.
func (v *validation) head(text string) {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		v.add(File, yamlLine(err), "its head is not YAML: %s", firstLine(err))
		return
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		v.add(File, 1, "its head is empty: it needs a name and a description")
		return
	}
	entries, ok := mapping(file.Docs[0].Body)
	if !ok {
		v.add(File, headOffset+1, "its head is not a list of `field: value`")
		return
	}
	seen := make(map[string]bool)
	for _, entry := range entries {
		key := entry.Key.GetToken()
		line := key.Position.Line + headOffset
		if seen[key.Value] {
			v.add(File, line, "%s is there twice", key.Value)
			continue
		}
		seen[key.Value] = true
		v.field(key.Value, line, entry.Value)
	}
	for _, required := range []string{"name", "description"} {
		if !seen[required] {
			v.add(File, 1, "its head lacks %s", required)
		}
	}
}

// mapping returns the entries of a YAML mapping; one entry alone parses as a
// node of another kind.
func mapping(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// field checks one entry of the head.
func (v *validation) field(key string, line int, value ast.Node) {
	if key == "metadata" {
		v.metadata(line, value)
		return
	}
	text, ok := scalar(value)
	switch {
	case key == "name":
		v.skill.Name = text
		if reason := checkName(text); !ok || reason != "" {
			v.add(File, line, "%s", reasonOr(reason, "name is not text"))
		} else if text != v.folderName {
			v.add(File, line, "name %q is not the folder's, %q", text, v.folderName)
		}
	case key == "description":
		v.skill.Description = text
		v.text(key, line, text, ok, 1, maxDescription)
	case key == "license":
		v.skill.License = text
		v.text(key, line, text, ok, 1, maxDescription)
	case key == "compatibility":
		v.skill.Compatibility = text
		v.text(key, line, text, ok, 1, maxCompatibility)
	case key == "allowed-tools":
		v.skill.AllowedTools = strings.Fields(text)
		if !ok {
			v.add(File, line, "allowed-tools is one line of names with spaces between them")
		}
	default:
		v.add(File, line, "there is no field %q: the format has %s", key, strings.Join(fields, ", "))
	}
}

func reasonOr(reason, other string) string {
	if reason == "" {
		return other
	}
	return reason
}

// text checks a value's kind and its length in characters.
func (v *validation) text(key string, line int, text string, ok bool, least, most int) {
	n := utf8.RuneCountInString(strings.TrimSpace(text))
	switch {
	case !ok:
		v.add(File, line, "%s is not text", key)
	case n < least:
		v.add(File, line, "%s is empty", key)
	case n > most:
		v.add(File, line, "%s has %d characters, it may have %d", key, n, most)
	}
}

// metadata checks the author's own fields.
func (v *validation) metadata(line int, value ast.Node) {
	entries, ok := mapping(value)
	if !ok {
		v.add(File, line, "metadata is not a list of `key: value`")
		return
	}
	v.skill.Metadata = make(map[string]string)
	for _, entry := range entries {
		text, ok := scalar(entry.Value)
		if !ok {
			v.add(File, entry.Key.GetToken().Position.Line+headOffset, "metadata %s is not text", entry.Key.GetToken().Value)
		}
		v.skill.Metadata[entry.Key.GetToken().Value] = text
	}
}

// scalar returns a plain value as text; false for lists, maps and nothing.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// yamlLine is the line of SKILL.md that a YAML error is about.
func yamlLine(err error) int {
	var at interface{ GetToken() *token.Token }
	if errors.As(err, &at) && at.GetToken() != nil {
		return at.GetToken().Position.Line + headOffset
	}
	return 1
}

// firstLine is a YAML error's message without the excerpt of the text.
func firstLine(err error) string {
	var message interface{ GetMessage() string }
	if errors.As(err, &message) {
		return message.GetMessage()
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}
