package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/session"
)

// series is one metric, which may have several values by labels.
type series struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	desc       *prometheus.Desc
}

// value is one value of the metric.
func (s *series) value(v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(s.desc, s.kind, v, labels...)
}

// list has all series that are declared below, in their order.
var list []*series

func declare(kind prometheus.ValueType, name, help string, labels ...string) *series {
	name = "media_sandbox_" + name
	s := &series{name: name, help: help, kind: kind, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	list = append(list, s)
	return s
}

func gauge(name, help string, labels ...string) *series {
	return declare(prometheus.GaugeValue, name, help, labels...)
}

func counter(name, help string, labels ...string) *series {
	return declare(prometheus.CounterValue, name, help, labels...)
}

var (
	build = gauge("build_info", "Always 1; the labels say which build runs, and the SHA-256 of its image.", "version", "go_version", "image")

	sandboxes    = gauge("sandboxes", "Sandboxes that live and belong to a chat.")
	maxSandboxes = gauge("sandboxes_limit", "The most that may live (limits.sandboxes).")
	poolReady    = gauge("pool_ready", "Booted sandboxes that wait for a chat.")
	poolSize     = gauge("pool_size", "How many of them are wanted (limits.pool).")

	running = gauge("commands_running", "Commands that run.")
	waiting = gauge("commands_waiting", "Commands that wait for their turn: behind others of their chat or account, or for a sandbox.")
	ended   = counter("commands_ended_total", "Commands that ended, by the state they ended in.", "state")

	uploadsQueued   = gauge("uploads_queued", "Uploads that are not done.")
	uploadsBytes    = gauge("uploads_queued_bytes", "Bytes of the uploads that are not done.")
	uploadsRunning  = gauge("uploads_running", "Uploads under way now.")
	uploadsRetrying = gauge("uploads_retrying", "Uploads that are not done and failed at least once.")
	published       = counter("uploads_published_total", "Uploads that were done.")
	publishedBytes  = counter("uploads_published_bytes_total", "Bytes of the uploads that were done.")
	retries         = counter("uploads_retries_total", "Attempts that failed and are repeated.")
	lost            = counter("uploads_failed_total", "Uploads that were given up, because the file's copy was lost.")

	stateBytes = gauge("state_bytes", "Size of the daemon's database.")
	diskFree   = gauge("disk_free_bytes", "Bytes that are free where the state is.")

	flowsOpen    = gauge("network_flows_open", "Flows that are open, of all sandboxes.", "protocol")
	flowsAllowed = counter("network_flows_allowed_total", "Flows that were let out, by the kind of rule that did it.", "rule")
	flowsRefused = counter("network_flows_refused_total", "Flows that were refused, by the kind of rule that did it.", "rule")
	flowsCut     = counter("network_flows_cut_total", "Open flows that were cut off, by the kind of rule that did it.", "rule")
	netBytes     = counter("network_bytes_total", "Payload bytes of TCP and UDP that sandboxes sent and received.", "direction")
	queries      = counter("network_dns_queries_total", "DNS queries of sandboxes.")
	namesRefused = counter("network_dns_refused_total", "Names, or addresses of them, that were refused, by the kind of rule that did it.", "rule")
	limitHits    = counter("network_limit_hits_total", "Times that a limit held something up: a flow that was refused (flows, total) or that waited (bandwidth).", "limit")
	dropped      = counter("network_frames_dropped_total", "Frames of sandboxes that no host would answer.")
	gateRestarts = counter("network_gate_restarts_total", "Gates that died under a living sandbox and were started again.")
)

// endings are the states that commands end in.
var endings = []api.State{
	api.StateSucceeded, api.StateFailed, api.StateTimedOut, api.StateCanceled, api.StateOOMKilled, api.StateLost,
}

func collectEngine(ch chan<- prometheus.Metric, f session.Figures) {
	for s, v := range map[*series]float64{
		sandboxes: float64(f.Usage.Sandboxes), maxSandboxes: float64(f.MaxSandboxes),
		poolReady: float64(f.PoolReady), poolSize: float64(f.PoolSize),
		running: float64(f.Usage.Running), waiting: float64(f.Usage.Waiting),
		uploadsQueued: float64(f.Uploads.Queued), uploadsBytes: float64(f.Uploads.QueuedBytes),
		uploadsRunning: float64(f.Uploads.Running), uploadsRetrying: float64(f.Uploads.Retrying),
		published: float64(f.Uploads.Uploaded), publishedBytes: float64(f.Uploads.UploadedBytes),
		retries: float64(f.Uploads.Retries), lost: float64(f.Uploads.Failed), diskFree: float64(f.DiskFree),
	} {
		ch <- s.value(v)
	}
	for _, state := range endings { // also those that no command ended in yet
		ch <- ended.value(float64(f.Ended[state]), string(state))
	}
}

func collectNetwork(ch chan<- prometheus.Metric, f session.Figures) {
	of := func(what, kind string) float64 { return f.Network[session.NetworkCount{What: what, Kind: kind}] }
	ch <- flowsOpen.value(float64(f.OpenTCP), "tcp")
	ch <- flowsOpen.value(float64(f.OpenUDP), "udp")
	ch <- netBytes.value(of(session.CountSent, ""), "sent")
	ch <- netBytes.value(of(session.CountReceived, ""), "received")
	ch <- queries.value(of(session.CountQueries, ""))
	ch <- dropped.value(of(session.CountDropped, ""))
	ch <- gateRestarts.value(float64(f.GateRestarts))
	ch <- limitHits.value(of(session.CountRefused, "flow-limit"), "flows")
	ch <- limitHits.value(of(session.CountRefused, "total-limit"), "total")
	ch <- limitHits.value(of(session.CountThrottled, ""), "bandwidth")
	byRule := map[string]*series{
		session.CountAllowed: flowsAllowed, session.CountRefused: flowsRefused,
		session.CountNamesRefused: namesRefused, session.CountCut: flowsCut,
	}
	for count, n := range f.Network {
		if s := byRule[count.What]; s != nil {
			ch <- s.value(n, count.Kind)
		}
	}
}
