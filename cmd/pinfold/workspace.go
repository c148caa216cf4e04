package main

import (
	"os"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

// parseWorkspace reads DIR[:mode]; "volume" alone is an empty workspace, and
// the empty text leaves it to the template. DIR may be relative to the working
// directory.
func parseWorkspace(text string) (sandbox.Workspace, error) {
	if text == "" {
		return sandbox.Workspace{}, nil
	}
	if text == string(sandbox.WorkspaceVolume) {
		return sandbox.Workspace{Mode: sandbox.WorkspaceVolume}, nil
	}
	ws := sandbox.Workspace{Mode: sandbox.WorkspaceOverlay, Path: text}
	if dir, mode, ok := cutLast(text, ":"); ok {
		switch m := sandbox.WorkspaceMode(mode); m {
		case sandbox.WorkspaceOverlay, sandbox.WorkspaceBind:
			ws = sandbox.Workspace{Mode: m, Path: dir}
		case sandbox.WorkspaceVolume:
			return ws, fail("Write --workspace volume for an empty one, or DIR:overlay.", "workspace: a volume has no folder of the host")
		default:
			if _, err := os.Stat(text); err != nil {
				return ws, fail("Write DIR, DIR:overlay or volume.", "workspace: there is no mode %q, nor a folder %q", mode, text)
			}
		}
	}
	path, err := absolute(ws.Path)
	if err != nil {
		return ws, fail("Give an absolute path.", "workspace: %q cannot be resolved", ws.Path)
	}
	ws.Path = path
	return ws, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
