package podman

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// storageDriver names the storage that Podman shall make for a user who has
// none and no opinion: its own default for plain users can be vfs, which copies
// a whole image for every container. It is empty where anybody has decided: a
// storage.conf, a variable, or a storage that is there.
func storageDriver() string {
	if os.Getenv("STORAGE_DRIVER") != "" || os.Getenv("CONTAINERS_STORAGE_CONF") != "" || !overlayWorks() {
		return ""
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	config, data := os.Getenv("XDG_CONFIG_HOME"), os.Getenv("XDG_DATA_HOME")
	if config == "" {
		config = filepath.Join(home, ".config")
	}
	if data == "" {
		data = filepath.Join(home, ".local", "share")
	}
	root := filepath.Join(data, "containers", "storage")
	for _, decided := range []string{
		filepath.Join(config, "containers", "storage.conf"), "/etc/containers/storage.conf", "/usr/share/containers/storage.conf",
		filepath.Join(root, "vfs"), filepath.Join(root, "btrfs"),
	} {
		if exists(decided) {
			return ""
		}
	}
	return "overlay"
}

// overlayWorks reports whether the kernel lets plain users mount overlays,
// which it does since 5.13 with the attributes that Podman uses.
func overlayWorks() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	major, minor := version(unix.ByteSliceToString(u.Release[:]))
	return major > 5 || major == 5 && minor >= 13
}

// version reads the first two numbers of a kernel's release.
func version(release string) (major, minor int) {
	numbers := [2]int{}
	part := 0
	for _, c := range release {
		switch {
		case c >= '0' && c <= '9':
			numbers[part] = numbers[part]*10 + int(c-'0')
		case c == '.' && part == 0:
			part = 1
		default:
			return numbers[0], numbers[1]
		}
	}
	return numbers[0], numbers[1]
}
