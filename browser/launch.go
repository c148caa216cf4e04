package browser

import (
	"path"
	"strings"
)

// browsers are the names under which Chromium is looked for, best first.
var browsers = []string{"chromium-headless-shell", "chrome-headless-shell", "headless_shell", "headless-shell",
	"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome"}

// noBrowserMark is what the launch script prints when it finds none of them.
const noBrowserMark = "pinfold: no browser found"

// script moves the stream to the descriptors of the DevTools pipe and becomes
// the browser. Its text is fixed: folders come through the environment and
// flags as arguments, never by interpolation. A lock that a killed browser left
// in the profile would stop a full Chromium, so it goes first.
var script = `exec 3<&0 4>&1 0</dev/null 1>&2
umask 077
mkdir -p "$HOME/profile" "$HOME/downloads" "$HOME/cache"
rm -f "$HOME/profile/SingletonLock" "$HOME/profile/SingletonCookie" "$HOME/profile/SingletonSocket"
cd "$HOME" || exit 126
for name in ` + strings.Join(browsers, " ") + `; do
  if found=$(command -v "$name"); then exec "$found" "$@"; fi
done
echo "` + noBrowserMark + `" >&2
exit 127`

// argv is the whole command of the browser. Chromium's own sandbox stays on.
func (o Options) argv() []string {
	argv := []string{"/bin/sh", "-c", script, "sh",
		"--headless",
		"--remote-debugging-pipe",
		"--user-data-dir=" + path.Join(o.Home, "profile"),
		"--disk-cache-dir=" + path.Join(o.Home, "cache"),
		"--no-first-run", "--no-default-browser-check", "--no-pings", "--noerrdialogs",
		"--disable-background-networking", "--disable-component-update", "--disable-domain-reliability",
		"--disable-client-side-phishing-detection", "--safebrowsing-disable-auto-update",
		"--disable-sync", "--disable-default-apps", "--disable-extensions", "--disable-breakpad",
		"--disable-crash-reporter", "--metrics-recording-only", "--disable-search-engine-choice-screen",
		// One process for a page and its frames, as the headless shell does by
		// default, so that every Chromium is driven alike.
		"--disable-site-isolation-trials",
		"--disable-features=IsolateOrigins,site-per-process,Translate,MediaRouter,DialMediaRouteProvider,OptimizationHints,AutofillServerCommunication," +
			"CertificateTransparencyComponentUpdater,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable,InterestFeedContentSuggestions",
		"--disable-popup-blocking", "--disable-prompt-on-repost", "--disable-hang-monitor",
		"--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
		"--password-store=basic", "--use-mock-keychain",
		"--force-color-profile=srgb", "--hide-scrollbars", "--mute-audio",
		// No network interface exists but loopback: nothing may look for a proxy, and
		// WebRTC may not tell local addresses.
		"--no-proxy-server",
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--lang=en-US", "--window-size=1280,800",
	}
	if o.NoGPU {
		argv = append(argv, "--disable-gpu", "--disable-software-rasterizer")
	}
	return append(argv, "about:blank")
}

// env is the whole environment of the browser.
func (o Options) env() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/headless-shell:/opt/google/chrome",
		"HOME=" + o.Home, "LANG=C.UTF-8", "TZ=UTC", "TMPDIR=/tmp",
		"XDG_CONFIG_HOME=" + path.Join(o.Home, "config"), "XDG_CACHE_HOME=" + path.Join(o.Home, "cache"),
		"XDG_RUNTIME_DIR=" + path.Join(o.Home, "run"),
	}
}

// fill puts the defaults in.
func (o Options) fill() Options {
	if o.Home == "" {
		o.Home = "/browser"
	}
	if o.Workspace == "" {
		o.Workspace = "/workspace"
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}
