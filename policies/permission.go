package policies

// Permission is what a tool needs.
type Permission string

// The permissions, in the order of the catalogue.
const (
	ShellExec       Permission = "shell.exec"
	ShellControl    Permission = "shell.control"
	CodeRun         Permission = "code.run"
	FileRead        Permission = "file.read"
	FileWrite       Permission = "file.write"
	BrowserNavigate Permission = "browser.navigate"
	BrowserRead     Permission = "browser.read"
	BrowserAct      Permission = "browser.act"
	SessionManage   Permission = "session.manage"
	SessionRead     Permission = "session.read"
	NetConnect      Permission = "net.connect"
)

// Permissions lists all of them.
var Permissions = []Permission{ShellExec, ShellControl, CodeRun, FileRead, FileWrite, BrowserNavigate, BrowserRead, BrowserAct, SessionManage, SessionRead, NetConnect}
