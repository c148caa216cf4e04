package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// parseURL reads an address as people write it.
func parseURL(raw string) (*url.URL, error) {
	raw = strings.TrimSpace(raw)
	scheme, rest, has := strings.Cut(raw, ":")
	lower := strings.ToLower(scheme)
	if strings.EqualFold(raw, "about:blank") {
		return &url.URL{Scheme: "about", Opaque: "blank"}, nil
	}
	if has && (strings.HasPrefix(rest, "//") || refusedScheme[lower]) && lower != "http" && lower != "https" {
		e := fail("blocked_by_policy", "Use http, https or about:blank.", "%s addresses are not opened", cut(cleanText(lower), 30)+":")
		switch lower {
		case "file", "view-source", "filesystem":
			e.Hint = "Read files with file_read. To see a folder in the browser, serve it: shell_run python3 -m http.server 8000 in the background, then http://localhost:8000/."
		case "javascript":
			e.Hint = "Act on the page with browser_act."
		}
		return nil, e
	}
	if !has || (lower != "http" && lower != "https") {
		// No scheme: host, host:port or host/path.
		u, err := url.Parse("https://" + raw)
		if err == nil && u.Host != "" {
			if local(u.Hostname()) {
				u.Scheme = "http"
			}
			raw = u.String()
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fail("bad_value", "Give an address such as http://localhost:3000/.", "url: %s is no address", quote(cut(cleanText(raw), 100))).with("field", "url")
	}
	if u.User != nil {
		return nil, fail("blocked_by_policy", "Leave user and password out of the address.", "an address with a user in it is not opened: what stands before the @ can pose as the host")
	}
	return u, nil
}

// refusedScheme are the ones that work without two slashes.
var refusedScheme = map[string]bool{"file": true, "view-source": true, "chrome": true, "devtools": true, "javascript": true,
	"data": true, "blob": true, "about": true, "filesystem": true, "chrome-extension": true, "ftp": true, "ws": true, "wss": true, "mailto": true}

// local tells whether a host without scheme gets http: loopback and private.
func local(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.Unmap().IsLoopback() || ip.Unmap().IsPrivate())
}

func loopback(u *url.URL) bool {
	h := u.Hostname()
	if h == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(h)
	return err == nil && ip.Unmap().IsLoopback()
}

// otherFamilies are the same address on the other loopback family: dev servers
// often bind only one. Chromium tries both for the name localhost by itself.
func otherFamilies(u *url.URL) []string {
	port := u.Port()
	var out []string
	for _, h := range map[string][]string{"127.0.0.1": {"::1"}, "::1": {"127.0.0.1"}}[u.Hostname()] {
		v := *u
		v.Host = net.JoinHostPort(h, port)
		if port == "" {
			v.Host = h
			if strings.Contains(h, ":") {
				v.Host = "[" + h + "]"
			}
		}
		out = append(out, v.String())
	}
	return out
}

// navigationError words a network error of Chromium.
func navigationError(netError, address string) *Error {
	e := fail("navigation_failed", "Check the address.", "%s: %s", cut(cleanText(address), maxURL), cut(cleanText(netError), 80)).with("net_error", netError)
	switch netError {
	case "net::ERR_CONNECTION_REFUSED":
		e.Hint = "Nothing listens there: start the server (shell_run with background), or give wait_server_ms."
	case "net::ERR_NAME_NOT_RESOLVED", "net::ERR_INTERNET_DISCONNECTED", "net::ERR_ADDRESS_UNREACHABLE", "net::ERR_NETWORK_ACCESS_DENIED":
		e.Hint = "The sandbox has no way to that host; loopback works. session_status tells what is allowed."
		e.Retry = false
	case "net::ERR_ABORTED":
		e.Hint = "The page stayed as it was: the server sent nothing (204), or another navigation took over."
		e.Retry = false
	case "net::ERR_UNSAFE_PORT":
		e.Hint = "Browsers refuse this port: serve on another one, such as 8000."
		e.Retry = false
	case "net::ERR_INVALID_URL", "net::ERR_UNKNOWN_URL_SCHEME":
		e.Retry = false
	case "net::ERR_EMPTY_RESPONSE", "net::ERR_INVALID_HTTP_RESPONSE", "net::ERR_SSL_PROTOCOL_ERROR":
		e.Hint = "The server there does not speak what the address says: try http instead of https, or the right port."
	}
	return e
}

// refusedHint adds the ports on which something does listen.
func (o *op) refusedHint(err error, to *url.URL) error {
	var e *Error
	l, ok := o.b.host.(Listener)
	if !errors.As(err, &e) || !ok || !loopback(to) {
		return err
	}
	ctx, cancel := context.WithTimeout(o.ctx, time.Second)
	defer cancel()
	ports, lerr := l.Listening(ctx)
	if lerr != nil {
		return err
	}
	if len(ports) > 30 {
		ports = ports[:30]
	}
	e.detail("listening", ports)
	if len(ports) == 0 {
		e.Hint = "Nothing listens on any port: start the server (shell_run with background), or give wait_server_ms."
	} else {
		e.Hint = fmt.Sprintf("Nothing listens there; ports with a server: %v. Start the server, or give wait_server_ms.", ports)
	}
	return err
}
