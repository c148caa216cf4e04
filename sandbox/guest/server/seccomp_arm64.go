package server

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// deniedHere are calls of this architecture alone.
var deniedHere = []uintptr{unix.SYS_NFSSERVCTL}
