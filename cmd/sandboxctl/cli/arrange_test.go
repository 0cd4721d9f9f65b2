package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestFlagsCountWhereverTheyStand(t *testing.T) {
	for line, want := range map[string]string{
		"cells":                                 "cells",
		"cells --json":                          "cells --json",
		"get #1 -o out.png":                     "get -o out.png -- #1",
		"get -o - /workspace/x":                 "get -o - -- /workspace/x",
		"get #1 --output=out.png --chat c":      "get --output=out.png --chat c -- #1",
		"put a.png /workspace/ --chat c":        "put --chat c -- a.png /workspace/",
		"rm -- -odd":                            "rm -- -odd",
		"cells --socket S --account=a":          "--socket S --account=a cells",
		"--json cells --chat c":                 "--json cells --chat c",
		"chats new x --title T":                 "chats new --title T -- x",
		"chats --json":                          "chats --json",
		"image verify x --json":                 "image verify --json -- x",
		"run --json -- ffmpeg -i x":             "run --json -- ffmpeg -i x",
		"run ffmpeg --json -i x":                "run -- ffmpeg --json -i x",
		"run -c print() -x --json":              "run -c print() -x --json",
		"run -f edit.py 1080 --json":            "run -f edit.py -- 1080 --json",
		"run --chat c --account a -- ls -- -la": "--account a run --chat c -- ls -- -la",
		"frob --json x":                         "-- frob --json x",
		"get #1 --frob":                         "get --frob -- #1",
		"get #1 -o":                             "get -o -- #1",
		"get --help #1":                         "get --help -- #1",
		"":                                      "",
	} {
		args := append([]string{"sandboxctl"}, strings.Fields(line)...)
		got := arrange(newApp(nil, nil, nil), args)
		if wanted := append([]string{"sandboxctl"}, strings.Fields(want)...); !slices.Equal(got, wanted) {
			t.Errorf("%q became %q, want %q", line, got[1:], want)
		}
	}
}
