package action

// Caller is who asks, as far as evidence goes. Facts are kept apart by where
// they come from; nothing in a Claimed part ever decides anything.
type Caller struct {
	Role   string   `json:"role"`            // shim, native or cli
	Unit   Unit     `json:"unit"`            // what an authorization of this caller covers
	Peer   Process  `json:"peer"`            // the process on the socket
	Agent  *Process `json:"agent,omitempty"` // for a shim: the process that started it
	Words  []string `json:"words"`           // states that a person must read, e.g. "program hidden"
	Claims Claims   `json:"claimed"`
}

// Subject is the process that an authorization names: the agent behind a
// shim, else the peer itself.
func (c Caller) Subject() Process {
	if c.Agent != nil {
		return *c.Agent
	}
	return c.Peer
}

// Claims is what the caller says of itself: display data.
type Claims struct {
	Program string            `json:"program"`
	Version string            `json:"version"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// Process is the evidence of one live process.
type Process struct {
	Kernel     KernelFacts `json:"kernel"`
	Filesystem FileFacts   `json:"filesystem"`
	Claimed    ProcClaims  `json:"claimed"`
}

// KernelFacts were answered by the kernel while the process was proven alive.
type KernelFacts struct {
	PID        int    `json:"pid"`
	PidfsInode uint64 `json:"pidfs_inode,omitempty"` // unique since boot (Linux 6.9 and later)
	StartTicks uint64 `json:"start_ticks"`           // /proc/PID/stat field 22
	BootID     string `json:"boot_id"`
	UID        int    `json:"uid"`
	GID        int    `json:"gid"`
	PPID       int    `json:"ppid"`
	ExePath    string `json:"exe_path"` // for display; identity is Device and Inode
	ExeDevice  uint64 `json:"exe_device"`
	ExeInode   uint64 `json:"exe_inode"`
	ExeState   string `json:"exe_state"` // file, hidden, replaced, memory
	TTY        string `json:"tty,omitempty"`
	Cgroup     string `json:"cgroup,omitempty"`
	TracerPID  int    `json:"tracer_pid,omitempty"`
	Container  bool   `json:"container,omitempty"` // another pid or mount namespace than the broker's

	Code *CodeFacts `json:"code,omitempty"` // macOS: what the live code's signature proves
}

// CodeFacts is the proven code signature of a live process on macOS.
type CodeFacts struct {
	Signer     string   `json:"signer"` // apple, developer, ad hoc
	Identifier string   `json:"identifier"`
	Team       string   `json:"team,omitempty"`
	CDHash     string   `json:"cdhash"` // 40 hex digits
	Words      []string `json:"words,omitempty"`
}

// FileFacts come from the file system that holds the executable.
type FileFacts struct {
	Size      int64  `json:"size"`
	Owner     int    `json:"owner"`
	Mode      string `json:"mode"` // octal permission bits, e.g. "0755"
	SHA256    string `json:"sha256,omitempty"`
	NotHashed string `json:"not_hashed,omitempty"` // why there is no digest
}

// ProcClaims are read through the kernel but chosen by the process.
type ProcClaims struct {
	Argv    []string `json:"argv,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Runtime string   `json:"runtime,omitempty"` // set when the executable is a runtime: its name
	Script  string   `json:"script,omitempty"`  // the script that a runtime says it runs
}
