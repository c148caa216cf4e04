package podman

import (
	"encoding/json"
	"strconv"
	"strings"

	"pinfold.dev/pinfold/sandbox"
)

// Labels on containers and volumes. A container from an image inherits the
// image's labels, so a label alone proves nothing: the name must fit too.
const (
	labelMark      = "pinfold"
	labelSession   = "pinfold.session"
	labelOwner     = "pinfold.owner"
	labelEpoch     = "pinfold.epoch"
	labelSpec      = "pinfold.spec"      // the spec as JSON
	labelRuntime   = "pinfold.runtime"   // crun, runc, runsc
	labelLink      = "pinfold.link"      // the transport that was chosen
	labelWorkspace = "pinfold.workspace" // session whose workspace volume is mounted
	labelVolume    = "pinfold.volume"    // what a volume is for
	labelState     = "pinfold.state"     // of a volume: the state folder whose record says whether it is kept
)

const namePrefix = "pinfold-"

// Volumes of a session, by what they are for.
const (
	volWorkspace = "workspace"
	volHome      = "home"
	volSession   = "session"
	volBrowser   = "browser"
)

func containerName(session string) string { return namePrefix + session }

func volumeName(session, use string) string { return namePrefix + session + "." + use }

// ownLabels are the labels of a container. All of them are set, empty ones
// too, so that none can come from the image.
func ownLabels(spec sandbox.Spec, runtime string, link sandbox.Link) (map[string]string, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	l := map[string]string{}
	for k, v := range spec.Labels {
		if !strings.HasPrefix(k, labelMark) {
			l[k] = v
		}
	}
	l[labelMark] = "1"
	l[labelSession] = spec.Session
	l[labelOwner] = spec.Owner
	l[labelEpoch] = strconv.FormatInt(spec.Epoch, 10)
	l[labelSpec] = string(data)
	l[labelRuntime] = runtime
	l[labelLink] = string(link)
	l[labelWorkspace] = workspaceSession(spec)
	l[labelVolume] = ""
	return l, nil
}

// workspaceSession is the session whose workspace a spec uses: its own, or the
// earlier one it resumes.
func workspaceSession(spec sandbox.Spec) string {
	if spec.Resume != "" {
		return spec.Resume
	}
	return spec.Session
}

// specOf reads back the spec of a container of ours; name and labels must
// agree.
func specOf(names []string, labels map[string]string) (sandbox.Spec, bool) {
	var spec sandbox.Spec
	if labels[labelMark] != "1" || json.Unmarshal([]byte(labels[labelSpec]), &spec) != nil {
		return spec, false
	}
	if spec.Session != labels[labelSession] || spec.Owner != labels[labelOwner] || !sessionGrammar.MatchString(spec.Session) {
		return spec, false
	}
	for _, n := range names {
		if strings.TrimPrefix(n, "/") == containerName(spec.Session) {
			return spec, true
		}
	}
	return spec, false
}
