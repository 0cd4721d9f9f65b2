package api

import "time"

// Network is what a chat's sandboxes may reach, and what they did.
type Network struct {
	Mode     string          `json:"mode" enum:"public,allowlist,none" doc:"What becomes of a flow that no rule is about: public allows public addresses, allowlist and none allow nothing. None has no network at all."`
	Rules    []string        `json:"rules" doc:"The chat's rules, 'allow|deny [tcp|udp] TARGET[:PORT[-PORT]]'; the first that matches counts. They narrow what the operator allows."`
	Limits   NetworkLimits   `json:"limits" doc:"In force: the narrower of the operator's and the chat's."`
	Operator NetworkOperator `json:"operator" doc:"What the chat can only narrow."`
	Pending  bool            `json:"pending,omitempty" doc:"The live sandbox was made without a network: this holds from the next one on."`
	Traffic  NetworkTraffic  `json:"traffic" doc:"Of all the chat's sandboxes."`
}

// NetworkOperator is what the host's operator configured for all chats.
type NetworkOperator struct {
	Mode     string   `json:"mode" enum:"public,allowlist,none"`
	Rules    []string `json:"rules" doc:"Asked before the chat's. They alone open private ranges and mail."`
	Services []string `json:"services" doc:"NAME:PORT of services on the host's loopback that sandboxes may use."`
}

// NetworkLimits bound a chat's traffic; 0 means no limit.
type NetworkLimits struct {
	Flows     int   `json:"flows,omitempty" minimum:"0" doc:"TCP and UDP flows open at once."`
	Bandwidth int64 `json:"bandwidth,omitempty" minimum:"0" doc:"Bytes a second, of both directions together."`
	Total     int64 `json:"total,omitempty" minimum:"0" doc:"Bytes of both directions over the chat's life. When they are spent, open flows end and no new one begins."`
}

// NetworkSettings change a chat's network. What is absent stays as it is.
type NetworkSettings struct {
	Mode   *string               `json:"mode,omitempty" enum:"public,allowlist,none"`
	Rules  *[]string             `json:"rules,omitempty" maxItems:"256" doc:"In place of the chat's rules."`
	Limits *NetworkLimitSettings `json:"limits,omitempty" doc:"Wider ones than the operator's have no effect."`
}

// NetworkLimitSettings change a chat's limits. What is absent stays as it is;
// 0 leaves the operator's in force.
type NetworkLimitSettings struct {
	Flows     *int   `json:"flows,omitempty" minimum:"0" doc:"TCP and UDP flows open at once."`
	Bandwidth *int64 `json:"bandwidth,omitempty" minimum:"0" doc:"Bytes a second."`
	Total     *int64 `json:"total,omitempty" minimum:"0" doc:"Bytes over the chat's life."`
}

// NetworkTraffic counts a chat's traffic.
type NetworkTraffic struct {
	Sent     int64 `json:"sent" doc:"Payload bytes that left."`
	Received int64 `json:"received" doc:"Payload bytes that came back."`
	Flows    int64 `json:"flows" doc:"TCP and UDP flows that were let out."`
	Refused  int64 `json:"refused" doc:"Flows and names that were refused."`
	Queries  int64 `json:"queries" doc:"DNS queries."`
	Dropped  int64 `json:"dropped" doc:"Frames that no host would answer: malformed, spoofed, not IPv4."`
	Open     int   `json:"open" doc:"Flows that are open now."`
}

// NetworkFlows are the flows of a chat's live sandbox.
type NetworkFlows struct {
	Open    []NetworkFlow    `json:"open" doc:"The newest first, 256 at most."`
	Closed  []NetworkFlow    `json:"closed" doc:"The last 64 that ended, oldest first."`
	Refused []NetworkRefusal `json:"refused" doc:"The last refusals, oldest first."`
}

// NetworkFlow is a flow that was let out.
type NetworkFlow struct {
	Protocol string     `json:"protocol" enum:"tcp,udp"`
	Name     string     `json:"name,omitempty" doc:"The name that led to the address, if one did."`
	Address  string     `json:"address" doc:"Where it really went."`
	Port     int        `json:"port" doc:"As the guest asked for it."`
	Rule     string     `json:"rule" doc:"That allowed it."`
	OpenedAt time.Time  `json:"opened_at"`
	ClosedAt *time.Time `json:"closed_at,omitempty"`
	Sent     int64      `json:"sent" doc:"Payload bytes."`
	Received int64      `json:"received" doc:"Payload bytes."`
	Cut      string     `json:"cut,omitempty" doc:"The rule or limit that cut it off, if one did."`
}

// NetworkRefusal is a flow or a name that was refused.
type NetworkRefusal struct {
	Time        time.Time `json:"time"`
	Protocol    string    `json:"protocol" enum:"tcp,udp,icmp,dns,ip" doc:"dns for a name that was not resolved, or not to this address."`
	Name        string    `json:"name,omitempty"`
	Address     string    `json:"address,omitempty"`
	Port        int       `json:"port,omitempty"`
	Rule        string    `json:"rule" doc:"That refused it."`
	Explanation string    `json:"explanation" doc:"What the rule is, for people."`
	Suppressed  uint64    `json:"suppressed,omitempty" doc:"Refusals before this one that were too many to list."`
}

// NetworkTest asks what would become of a flow. Nothing is sent.
type NetworkTest struct {
	Host     string `json:"host" minLength:"1" maxLength:"300" doc:"A name or an address."`
	Port     int    `json:"port,omitempty" minimum:"0" maximum:"65535" doc:"Default 443."`
	Protocol string `json:"protocol,omitempty" enum:"tcp,udp" doc:"Default tcp."`
}

// NetworkVerdict says what would become of a flow.
type NetworkVerdict struct {
	Protocol    string `json:"protocol"`
	Host        string `json:"host"`
	Port        int    `json:"port"`
	Allow       bool   `json:"allow"`
	Rule        string `json:"rule" doc:"That decides it."`
	Explanation string `json:"explanation" doc:"What the rule is, for people."`
	Conditional bool   `json:"conditional,omitempty" doc:"A name is not resolved for a test: each of its addresses is judged when a sandbox asks for it, and those that are closed are left out."`
}
