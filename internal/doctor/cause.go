package doctor

// Causes. Each has advice at the command line, which a test holds.
const (
	NotRunning       Cause = "not_running"
	StaleSocket      Cause = "stale_socket"
	Starting         Cause = "starting"
	Forbidden        Cause = "forbidden"
	UnsafeEndpoint   Cause = "unsafe_endpoint"
	NotAnswering     Cause = "not_answering"
	NotOurBroker     Cause = "not_our_broker"
	NoStatus         Cause = "no_status"
	BrokerLocked     Cause = "broker_locked"
	OtherVersion     Cause = "other_version"
	ProgramReplaced  Cause = "program_replaced"
	ProgramMissing   Cause = "program_missing"
	ProgramOpen      Cause = "program_open"
	ByHand           Cause = "by_hand"
	UnknownService   Cause = "unknown_service"
	Dumpable         Cause = "dumpable"
	MemoryNotLocked  Cause = "memory_not_locked"
	HiddenListener   Cause = "hidden_listener"
	NoVault          Cause = "no_vault"
	VaultDamaged     Cause = "vault_damaged"
	VaultRolledBack  Cause = "vault_rolled_back"
	NoRecovery       Cause = "no_recovery"
	NoPrevious       Cause = "no_previous"
	ReplacedKept     Cause = "replaced_kept"
	FileOpen         Cause = "file_open"
	HomeOpen         Cause = "home_open"
	HomeMissing      Cause = "home_missing"
	NoLedger         Cause = "no_ledger"
	LedgerUnknown    Cause = "ledger_unknown"
	LedgerStopped    Cause = "ledger_stopped"
	DiskFull         Cause = "disk_full"
	DiskLow          Cause = "disk_low"
	DiskUnknown      Cause = "disk_unknown"
	ClockBehind      Cause = "clock_behind"
	KernelOld        Cause = "kernel_old"
	PtraceOpen       Cause = "ptrace_open"
	UserNamespaces   Cause = "user_namespaces"
	NoWatches        Cause = "no_watches"
	Sandboxed        Cause = "sandboxed"
	ClientMissing    Cause = "client_missing"
	ClientOther      Cause = "client_other"
	ClientRelative   Cause = "client_relative"
	ClientSandboxed  Cause = "client_sandboxed"
	ClientUnreadable Cause = "client_unreadable"
	NoClient         Cause = "no_client"
	AsRoot           Cause = "as_root"
	ProxyIgnored     Cause = "proxy_ignored"
	SystemUnknown    Cause = "system_unknown"
)

// Causes are all of them.
var Causes = []Cause{NotRunning, StaleSocket, Starting, Forbidden, UnsafeEndpoint, NotAnswering, NotOurBroker, NoStatus, BrokerLocked, OtherVersion,
	ProgramReplaced, ProgramMissing, ProgramOpen, ByHand, UnknownService, Dumpable, MemoryNotLocked, HiddenListener, NoVault, VaultDamaged,
	VaultRolledBack, NoRecovery, NoPrevious, ReplacedKept, FileOpen, HomeOpen, HomeMissing, NoLedger, LedgerUnknown, LedgerStopped,
	DiskFull, DiskLow, DiskUnknown, ClockBehind, KernelOld, PtraceOpen, UserNamespaces, NoWatches, Sandboxed, ClientMissing,
	ClientOther, ClientRelative, ClientUnreadable, ClientSandboxed, NoClient, AsRoot, ProxyIgnored, SystemUnknown}
