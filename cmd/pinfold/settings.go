package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"pinfold.dev/pinfold/policies"
	"pinfold.dev/pinfold/sandbox"
	"pinfold.dev/pinfold/templates"
	"pinfold.dev/pinfold/tools"
)

// layer is one source of settings: a file, the environment or the flags. What
// a layer leaves nil it does not say. The YAML key is the flag's name with _
// for -, and the variable is PINFOLD_ and the key in capitals.
type layer struct {
	Template  *string   `yaml:"template"`
	Workspace *string   `yaml:"workspace"` // DIR[:mode]
	Roots     *[]string `yaml:"roots"`     // folders under which the model may place an overlay
	Policy    *string   `yaml:"policy"`    // name of a file in policies/, or default
	Tools     *string   `yaml:"tools"`     // minimal, core, all
	HTTP      *string   `yaml:"http"`      // 127.0.0.1:PORT
	SSE       *bool     `yaml:"sse"`
	NoAuth    *bool     `yaml:"no_auth"`
	LogLevel  *string   `yaml:"log_level"` // debug, info, warn, error
	LogFile   *string   `yaml:"log_file"`

	source string
}

// settings are what holds.
type settings struct {
	Template  string
	Workspace sandbox.Workspace
	Roots     []string
	Policy    string
	Tools     tools.Set
	HTTP      string
	SSE       bool
	NoAuth    bool
	LogLevel  slog.Level
	LogFile   string
}

var toolSets = map[string]tools.Set{"minimal": tools.Minimal, "core": tools.Core, "all": tools.Full}

// loadSettings merges the layers: the operator's file first, then flags,
// environment, the user's file and what is built in.
func loadSettings(flags *pflag.FlagSet, environ []string, configFile string) (settings, error) {
	if configFile == "" {
		configFile = lookup(environ, "PINFOLD_CONFIG")
	}
	floor, err := fileLayer(filepath.Join(operatorDir, "config.yaml"), false)
	if err != nil {
		return settings{}, err
	}
	if floor.source != "" {
		if err := policies.RootOwned(floor.source); err != nil {
			return settings{}, operatorFault(err)
		}
	}
	user, err := fileLayer(orDefault(configFile, filepath.Join(configDir(), "config.yaml")), configFile != "")
	if err != nil {
		return settings{}, err
	}
	env, err := environmentLayer(environ)
	if err != nil {
		return settings{}, err
	}
	return merge(floor, flagLayer(flags), env, user, builtinLayer())
}

func builtinLayer() layer {
	template, policy, set, level, empty, no := templates.Default, "default", "core", "info", "", false
	return layer{Template: &template, Policy: &policy, Workspace: &empty, Roots: &[]string{}, Tools: &set, HTTP: &empty,
		SSE: &no, NoAuth: &no, LogLevel: &level, LogFile: &empty, source: "built in"}
}

func fileLayer(path string, must bool) (layer, error) {
	var l layer
	data, err := policies.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return l, nil
	}
	if err != nil {
		return l, fail("Check the path; without --config the file is optional.", "the settings file %s cannot be read", path)
	}
	if _, err := policies.DecodeYAML(data, &l); err != nil {
		return l, &failure{what: fmt.Sprintf("%s: %v", path, err), next: "Correct the file; nothing was started.", code: exitFailure}
	}
	l.source = path
	return l, nil
}

// fields calls f for each key of a layer, in order.
func (l *layer) fields(f func(key string, v reflect.Value)) {
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		if key := v.Type().Field(i).Tag.Get("yaml"); key != "" {
			f(key, v.Field(i))
		}
	}
}

func environmentLayer(environ []string) (layer, error) {
	l := layer{source: "the environment"}
	var err error
	l.fields(func(key string, v reflect.Value) {
		name := "PINFOLD_" + strings.ToUpper(key)
		text, ok := lookupSet(environ, name)
		if !ok || err != nil {
			return
		}
		switch p := v.Addr().Interface().(type) {
		case **string:
			*p = &text
		case **[]string:
			list := filepath.SplitList(text)
			*p = &list
		case **bool:
			b, e := strconv.ParseBool(text)
			if e != nil {
				err = fail("Write true or false.", "%s is %q, which is neither true nor false", name, text)
			}
			*p = &b
		}
	})
	return l, err
}

// flagLayer holds what was given on the command line; a flag at its default says nothing.
func flagLayer(flags *pflag.FlagSet) layer {
	l := layer{source: "the command line"}
	l.fields(func(key string, v reflect.Value) {
		name := strings.ReplaceAll(key, "_", "-")
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
			return
		}
		text := f.Value.String()
		switch p := v.Addr().Interface().(type) {
		case **string:
			*p = &text
		case **[]string:
			list, _ := flags.GetStringArray(name)
			*p = &list
		case **bool:
			b := text == "true"
			*p = &b
		}
	})
	return l
}

// merge takes each key from the first layer that says it, and checks it there.
func merge(layers ...layer) (settings, error) {
	var all layer
	from := map[string]string{}
	for _, l := range layers {
		at := map[string]reflect.Value{}
		l.fields(func(key string, v reflect.Value) { at[key] = v })
		all.fields(func(key string, v reflect.Value) {
			if v.IsNil() && !at[key].IsNil() {
				v.Set(at[key])
				from[key] = l.source
			}
		})
	}
	s := settings{Template: *all.Template, Policy: *all.Policy, HTTP: *all.HTTP, SSE: *all.SSE, NoAuth: *all.NoAuth, LogFile: *all.LogFile}
	set, ok := toolSets[*all.Tools]
	if !ok {
		return s, fail("Write minimal, core or all.", "tools: there is no set %q (from %s)", *all.Tools, from["tools"])
	}
	s.Tools = set
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, *all.LogLevel) {
		return s, fail("Write debug, info, warn or error.", "log_level: there is no level %q (from %s)", *all.LogLevel, from["log_level"])
	}
	_ = s.LogLevel.UnmarshalText([]byte(*all.LogLevel))
	var err error
	if s.Workspace, err = parseWorkspace(*all.Workspace); err != nil {
		return s, err
	}
	if s.HTTP != "" {
		if err := checkAddress(s.HTTP); err != nil {
			return s, err
		}
	}
	if (s.SSE || s.NoAuth) && s.HTTP == "" {
		return s, fail("Add --http 127.0.0.1:PORT, or leave --sse and --no-auth out.", "sse and no_auth are about HTTP, and this server speaks stdio")
	}
	for _, r := range *all.Roots {
		if !filepath.IsAbs(r) {
			return s, fail("Write the whole path.", "roots: %q is not an absolute path (from %s)", r, from["roots"])
		}
		s.Roots = append(s.Roots, r)
	}
	return s, nil
}

// checkAddress refuses what is not loopback: the bearer token is no
// authentication to lean on where others can listen.
func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fail("Write 127.0.0.1:PORT, with port 0 for a free one.", "http: %q is not an address with a port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return fail("Write a port between 0 and 65535.", "http: %q is not a port", port)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fail("Use 127.0.0.1 and a tunnel of your own (for example ssh -L) until then.", "http: %q is not a loopback address, and others are refused until authentication is complete", host)
	}
	return nil
}

func lookup(environ []string, name string) string {
	v, _ := lookupSet(environ, name)
	return v
}

func lookupSet(environ []string, name string) (string, bool) {
	for _, kv := range environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

func orDefault(s, dflt string) string {
	if s == "" {
		return dflt
	}
	return s
}

// operatorFault words the error of an operator's file that root alone must own.
func operatorFault(err error) error {
	return &failure{what: err.Error(), next: "Give it to root (chown root:root, chmod go-w), with the folders above it.", code: exitFailure, cause: err}
}
