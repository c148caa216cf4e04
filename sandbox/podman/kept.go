package podman

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"pinfold.dev/pinfold/sandbox"
)

// record says what a session's folder on the host belongs to. The folder holds
// the layer of an overlay workspace; it stands, too, for a session of whichever
// mode whose workspace is kept. Volumes cannot say that of themselves: their
// labels are fixed when they are made.
type record struct {
	Spec sandbox.Spec `json:"spec"`
	Kept bool         `json:"kept"` // ended with KeepWorkspace; stays until it is removed by name
}

const recordFile = "sandbox.json"

// sessionDir is the folder of a session that outlives servers.
func (e *Engine) sessionDir(session string) string {
	return sessionDirIn(e.opts.StateDir, session)
}

func sessionDirIn(state, session string) string {
	return filepath.Join(state, "sandboxes", session)
}

func (e *Engine) writeRecord(r record) error {
	dir := e.sessionDir(workspaceSession(r.Spec))
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	// Renamed into place: half a record would lose a workspace.
	tmp := filepath.Join(dir, recordFile+".new")
	if err == nil {
		err = os.WriteFile(tmp, data, 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, recordFile))
	}
	if err != nil {
		return fmt.Errorf("recording the session's workspace: %w", err)
	}
	return nil
}

// readRecord returns the record of a session. A folder without one is half
// made; one that cannot be read counts as kept, for its content may be wanted.
func (e *Engine) readRecord(session string) (record, bool) {
	return readRecordIn(e.opts.StateDir, session)
}

func readRecordIn(state, session string) (record, bool) {
	b, err := os.ReadFile(filepath.Join(sessionDirIn(state, session), recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return record{}, false
	}
	var r record
	if err != nil || json.Unmarshal(b, &r) != nil {
		return record{Kept: true}, true
	}
	return r, true
}

// kept returns the check whether the workspace of a session is to stay. Servers
// with other state folders share the storage, so each volume is asked about
// where it was made.
func (e *Engine) kept(f *found) func(session string) bool {
	return func(session string) bool {
		states := map[string]bool{e.opts.StateDir: true}
		for _, v := range f.volumes[session] {
			if filepath.IsAbs(v.state) {
				states[v.state] = true
			}
		}
		for state := range states {
			if r, ok := readRecordIn(state, session); ok && r.Kept {
				return true
			}
		}
		return false
	}
}
