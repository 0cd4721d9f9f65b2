package cli

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
)

func netCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "net", Usage: "show and narrow what a chat's sandboxes may reach, and what they did", ArgsUsage: " ",
		Description: "A rule is \"allow|deny [tcp|udp] TARGET[:PORT[-PORT]]\", where TARGET is a name, *.NAME for the names\n" +
			"below it, an address, a CIDR, or * for everything. The first rule that matches counts; the mode\n" +
			"decides the rest. A chat narrows what the host's operator allows and never widens it.\n\n" + examples(
			`sandboxctl net show --chat spring`,
			`sandboxctl net set --mode allowlist --rule 'allow tcp example.org:443' --rule 'allow tcp *.example.org:443'`,
			`sandboxctl net flows`,
			`sandboxctl net test 10.1.2.3:443`),
		Flags:  []cli.Flag{chatFlag(), jsonFlag()},
		Action: showNet,
		Subcommands: []*cli.Command{
			verb(&cli.Command{
				Name: "show", Usage: "show the chat's mode, rules, limits and traffic", ArgsUsage: " ",
				Description: examples(`sandboxctl net show`, `sandboxctl net show --chat spring --json`),
				Flags:       []cli.Flag{chatFlag(), jsonFlag()},
				Action:      showNet,
			}),
			verb(&cli.Command{
				Name: "set", Usage: "change them; new flows meet the change, and open ones that it denies are cut off", ArgsUsage: " ",
				Description: "What is not given stays as it is. Rules take the place of all earlier ones of the chat.\n\n" + examples(
					`sandboxctl net set --mode none`,
					`sandboxctl net set --mode public --rule 'deny *.ads.example'`,
					`sandboxctl net set --no-rules --bandwidth 2MiB --total 1GiB`),
				Flags: []cli.Flag{
					chatFlag(), jsonFlag(),
					&cli.StringFlag{Name: "mode", Usage: "what becomes of a flow that no rule is about: `MODE` public, allowlist or none"},
					&cli.StringSliceFlag{Name: "rule", Usage: "a `RULE`; may be given again, in the order that counts"},
					&cli.BoolFlag{Name: "no-rules", Usage: "remove the chat's rules", DisableDefaultText: true},
					&cli.IntFlag{Name: "flows", Usage: "at most `N` flows open at once; 0 for the operator's limit", DefaultText: "unchanged"},
					&cli.StringFlag{Name: "bandwidth", Usage: "at most this `SIZE` a second; 0 for the operator's limit", DefaultText: "unchanged"},
					&cli.StringFlag{Name: "total", Usage: "at most this `SIZE` over the chat's life; 0 for the operator's limit", DefaultText: "unchanged"},
				},
				Action: setNet,
			}),
			verb(&cli.Command{
				Name: "flows", Usage: "list the live sandbox's flows, and what was refused by which rule", ArgsUsage: " ",
				Description: examples(`sandboxctl net flows`, `sandboxctl net flows --json`),
				Flags:       []cli.Flag{chatFlag(), jsonFlag()},
				Action:      showFlows,
			}),
			verb(&cli.Command{
				Name: "test", Usage: "say what would become of a flow, and why; nothing is sent", ArgsUsage: "HOST[:PORT]",
				Description: "The port is 443 if none is given. It exits with 1 when the flow would be refused.\n\n" + examples(
					`sandboxctl net test example.org`, `sandboxctl net test 169.254.169.254:80`, `sandboxctl net test --udp '[2001:db8::1]:53'`),
				Flags:  []cli.Flag{chatFlag(), jsonFlag(), &cli.BoolFlag{Name: "udp", Usage: "a UDP flow, not TCP", DisableDefaultText: true}},
				Action: testNet,
			}),
		},
	})
}

func showNet(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("net knows no %q: see `sandboxctl net --help`", c.Args().First())
	}
	n, err := connect(c).Network(c.Context, c.String("chat"))
	if err != nil {
		return err
	}
	return printNet(c, n)
}

func printNet(c *cli.Context, n api.Network) error {
	if wantJSON(c) {
		return printJSON(c, n)
	}
	mode := n.Mode
	if n.Pending {
		mode += " (from the next sandbox on: the live one was made without a network)"
	}
	t := newTable(c.App.Writer)
	t.row("mode", mode)
	for _, r := range n.Rules {
		t.row("rule", r)
	}
	t.row("operator's mode", n.Operator.Mode)
	for _, r := range n.Operator.Rules {
		t.row("operator's rule", r)
	}
	for _, s := range n.Operator.Services {
		t.row("operator's service", s)
	}
	t.row("limits", limitsText(n.Limits))
	t.row("traffic", fmt.Sprintf("%s sent, %s received in %d flows, %d open; %d DNS queries; %d refused",
		humanize.IBytes(uint64(n.Traffic.Sent)), humanize.IBytes(uint64(n.Traffic.Received)), n.Traffic.Flows, n.Traffic.Open, n.Traffic.Queries, n.Traffic.Refused))
	return t.flush()
}

func limitsText(l api.NetworkLimits) string {
	var parts []string
	if l.Flows > 0 {
		parts = append(parts, fmt.Sprintf("%d flows at a time", l.Flows))
	}
	if l.Bandwidth > 0 {
		parts = append(parts, humanize.IBytes(uint64(l.Bandwidth))+" a second")
	}
	if l.Total > 0 {
		parts = append(parts, humanize.IBytes(uint64(l.Total))+" over the chat's life")
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func setNet(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("net set takes no argument: see `sandboxctl net set --help`")
	}
	var set api.NetworkSettings
	if c.IsSet("mode") {
		mode := c.String("mode")
		set.Mode = &mode
	}
	rules := c.StringSlice("rule")
	switch {
	case len(rules) > 0 && c.Bool("no-rules"):
		return usagef("--rule and --no-rules exclude each other")
	case len(rules) > 0:
		set.Rules = &rules
	case c.Bool("no-rules"):
		set.Rules = &[]string{}
	}
	var err error
	if set.Limits, err = newLimits(c); err != nil {
		return err
	}
	if set == (api.NetworkSettings{}) {
		return usagef("say what to change: see `sandboxctl net set --help`")
	}
	n, err := connect(c).SetNetwork(c.Context, c.String("chat"), set)
	if err != nil {
		return err
	}
	return printNet(c, n)
}

// newLimits reads the limits that are given, nil when none is.
func newLimits(c *cli.Context) (*api.NetworkLimitSettings, error) {
	var l api.NetworkLimitSettings
	if c.IsSet("flows") {
		n := c.Int("flows")
		if n < 0 {
			return nil, usagef("--flows must not be negative")
		}
		l.Flows = &n
	}
	for name, limit := range map[string]**int64{"bandwidth": &l.Bandwidth, "total": &l.Total} {
		if !c.IsSet(name) {
			continue
		}
		size, err := humanize.ParseBytes(c.String(name))
		if err != nil || size > 1<<62 {
			return nil, usagef("--%s %q is not a size: write it like 2MiB", name, c.String(name))
		}
		n := int64(size)
		*limit = &n
	}
	if l == (api.NetworkLimitSettings{}) {
		return nil, nil
	}
	return &l, nil
}

func showFlows(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("net flows takes no argument: name the chat with --chat")
	}
	flows, err := connect(c).Flows(c.Context, c.String("chat"))
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printJSON(c, flows)
	}
	t := newTable(c.App.Writer, "TIME", "STATE", "PROTOCOL", "NAME", "ADDRESS", "SENT", "RECEIVED", "RULE")
	row := func(f api.NetworkFlow, state string) {
		rule := f.Rule
		if f.Cut != "" {
			state, rule = "cut", f.Cut
		}
		t.row(clock(f.OpenedAt), state, f.Protocol, orDash(f.Name), net.JoinHostPort(f.Address, strconv.Itoa(f.Port)),
			humanize.IBytes(uint64(f.Sent)), humanize.IBytes(uint64(f.Received)), rule)
	}
	for _, f := range flows.Closed {
		row(f, "closed")
	}
	for _, f := range flows.Open {
		row(f, "open")
	}
	for _, r := range flows.Refused {
		to := orDash(r.Address)
		if r.Port != 0 {
			to = net.JoinHostPort(r.Address, strconv.Itoa(r.Port))
		}
		t.row(clock(r.Time), "refused", r.Protocol, orDash(r.Name), to, "-", "-", r.Rule)
	}
	return t.flush()
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }

// orDash keeps a column from being empty. Names come from the guest.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

func testNet(c *cli.Context) error {
	text, err := argument(c, "HOST or HOST:PORT")
	if err != nil {
		return err
	}
	req := api.NetworkTest{Host: text, Protocol: "tcp"}
	if c.Bool("udp") {
		req.Protocol = "udp"
	}
	// A bare IPv6 address has no port; one in brackets may have.
	if host, port, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return usagef("%q is not a port", port)
		}
		req.Host, req.Port = host, int(n)
	}
	v, err := connect(c).TestNetwork(c.Context, c.String("chat"), req)
	if err != nil {
		return err
	}
	if err := printVerdict(c, v); err != nil {
		return err
	}
	if !v.Allow {
		return exitStatus{code: 1}
	}
	return nil
}

func printVerdict(c *cli.Context, v api.NetworkVerdict) error {
	if wantJSON(c) {
		return printJSON(c, v)
	}
	verdict := paint(c.App.Writer, red, "refused")
	if v.Allow {
		verdict = paint(c.App.Writer, green, "allowed")
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s %s: %s by %s (%s)\n", v.Protocol, net.JoinHostPort(v.Host, strconv.Itoa(v.Port)), verdict, v.Rule, v.Explanation)
	if err == nil && v.Conditional {
		_, err = fmt.Fprintln(c.App.Writer, "The name was not resolved: its addresses are judged when a sandbox asks for it.")
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
