package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mediasandbox/daemon/api"
)

type skillArgs struct {
	Name string `json:"name" jsonschema:"the skill's name, as the tool skills lists it"`
}

type useArgs struct {
	Names []string `json:"names" jsonschema:"all skills that are to be below /skills from now on"`
}

type networkArgs struct {
	Host     string `json:"host" jsonschema:"a name or an address"`
	Port     int    `json:"port,omitempty" jsonschema:"default 443"`
	Protocol string `json:"protocol,omitempty" jsonschema:"tcp (the default) or udp"`
}

const skillURI = "skill:///"

func (s *server) addSkillTools() {
	tool(s, &sdk.Tool{
		Name: "skills", Annotations: reading("List skills"),
		Description: "List the skills: what each is for. Read the one that fits before you begin.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, error) {
		skills, err := s.cfg.Client.Skills(ctx)
		if err != nil {
			return nil, err
		}
		var lines []string
		for _, k := range skills {
			lines = append(lines, fmt.Sprintf("%s: %s\n  files: %s", k.Name, k.Description, strings.Join(k.Files, ", ")))
		}
		return said("%s", strings.Join(lines, "\n")), nil
	})
	tool(s, &sdk.Tool{
		Name: "read_skill", Annotations: reading("Read a skill"),
		Description: "Read a skill's SKILL.md. Its other files stand below /skills/NAME in the sandbox once it is active.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in skillArgs) (*sdk.CallToolResult, error) {
		k, err := s.cfg.Client.Skill(ctx, in.Name)
		if err != nil {
			return nil, err
		}
		return said("%s", k.Text), nil
	})
	tool(s, &sdk.Tool{
		Name: "use_skills", Annotations: adding("Activate skills"),
		Description: "Say which skills are active in this chat: they are laid below /skills, read-only.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in useArgs) (*sdk.CallToolResult, error) {
		chat, err := s.cfg.Client.SetSkills(ctx, s.cfg.Chat, in.Names)
		if err != nil {
			return nil, err
		}
		return said("active: %s", strings.Join(chat.Skills, ", ")), nil
	})
	tool(s, &sdk.Tool{
		Name: "test_network", Annotations: reading("Test the network policy"),
		Description: "Ask whether the sandbox may reach a host, and by which rule. Nothing is sent.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in networkArgs) (*sdk.CallToolResult, error) {
		v, err := s.cfg.Client.TestNetwork(ctx, s.cfg.Chat, api.NetworkTest{Host: in.Host, Port: in.Port, Protocol: in.Protocol})
		return asJSON(v, err)
	})
	s.mcp.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "skill", Title: "A skill", URITemplate: "skill:///{name}", MIMEType: "text/markdown",
		Description: "SKILL.md of a skill by its name.",
	}, s.readSkill)
}

func (s *server) readSkill(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	k, err := s.cfg.Client.Skill(ctx, strings.TrimPrefix(req.Params.URI, skillURI))
	if err != nil {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI, MIMEType: "text/markdown", Text: k.Text}}}, nil
}

// asJSON is a result that is read as data.
func asJSON(v any, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode a result: %w", err)
	}
	return said("%s", body), nil
}

func mimeOf(body []byte) string {
	kind, _, _ := strings.Cut(http.DetectContentType(body), ";")
	return kind
}
