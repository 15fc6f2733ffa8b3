package main

import (
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/doctor"
)

// nextSteps is what to do about each cause.
var nextSteps = map[doctor.Cause]string{
	doctor.NotRunning:       "Start the broker: yett up.",
	doctor.StaleSocket:      "The broker has ended and left its socket. Start it again: yett up; it removes what it proves to be a leftover.",
	doctor.Starting:         "Try again in a moment; if it stays so, look at the service's log.",
	doctor.Forbidden:        "Run it outside the sandbox, or allow the socket there.",
	doctor.UnsafeEndpoint:   "Find out who made it so. Yett uses and removes nothing there: make the directory your own and 0700, or move what is in the way aside.",
	doctor.NotAnswering:     "Look at the broker's log; end that process and start it again: yett up.",
	doctor.NotOurBroker:     "Find out who listens there: ss -xlp. Use the yett that lies beside the broker's program.",
	doctor.NoStatus:         "It may be stopped or overloaded. Look at its log; if it stays so, end the process and start it again: yett up.",
	doctor.BrokerLocked:     "Unlock it when agents need it: yett unlock.",
	doctor.OtherVersion:     "Restart the broker, so that both are of one release: yett stop, then yett up.",
	doctor.ProgramReplaced:  "Restart the broker when it suits you, and then the agents: the running ones go on as they are.",
	doctor.ProgramMissing:   "Install yett and yett-mcp into one directory.",
	doctor.ProgramOpen:      "Whoever can change it can act as it: chmod go-w, and give it to your account or root.",
	doctor.ByHand:           "Nothing starts it after a login. systemd can: yett service install.",
	doctor.UnknownService:   "Nothing, if you know who starts the broker.",
	doctor.Dumpable:         "Stop the broker and look at its log: hardening failed. Something may hold it in a debugger or a container.",
	doctor.MemoryNotLocked:  "Raise the limit for the broker: ulimit -l, or LimitMEMLOCK in its unit. Encrypted swap does it too.",
	doctor.HiddenListener:   "Yett opens none but the console's. See as root whose they are: ss -ltnp.",
	doctor.NoVault:          "Make it, and start the broker: yett up.",
	doctor.VaultDamaged:     "Leave the file as it is. Restore a backup: yett vault restore FILE.",
	doctor.VaultRolledBack:  "An older file lies in the vault's place. If you did not put it there, find out who did before you unlock.",
	doctor.NoRecovery:       "Make a recovery code: yett vault recovery-code.",
	doctor.NoPrevious:       "Nothing; the next change of the vault keeps it.",
	doctor.ReplacedKept:     "It opens with its own passphrase. Remove it when you do not need it any more.",
	doctor.FileOpen:         "Find out who made it so, then chmod 600 it and give it to your account.",
	doctor.HomeOpen:         "Find out who made it so, then chmod 700 it and give it to your account.",
	doctor.HomeMissing:      "Make the vault, and start the broker: yett up.",
	doctor.NoLedger:         "Nothing; the broker makes it at its first start.",
	doctor.LedgerUnknown:    "Keep the files as they are, and look at: yett audit verify.",
	doctor.LedgerStopped:    "Look at yett audit verify and the broker's log.",
	doctor.DiskFull:         "Make room: without it no action can be recorded, so none is done.",
	doctor.DiskLow:          "Make room before it runs out.",
	doctor.DiskUnknown:      "Look at the disk of the data directory.",
	doctor.ClockBehind:      "Set the clock. Ends of sessions go by another one, but rows and cards carry this time.",
	doctor.KernelOld:        "Use Linux 6.5 or later, with its own /proc.",
	doctor.PtraceOpen:       "The broker keeps its own memory shut; agents do not. To shut theirs: sysctl kernel.yama.ptrace_scope=1.",
	doctor.UserNamespaces:   "Read the program on a card as a hint. Where nothing needs them: sysctl user.max_user_namespaces=0, or AppArmor's restriction.",
	doctor.NoWatches:        "Raise fs.inotify.max_user_watches or max_user_instances; until then agents on pipes are asked for each action.",
	doctor.Sandboxed:        "Nothing, if you meant it so: whoever holds the outside can see in.",
	doctor.ClientMissing:    "Enter the installed one: yett connect; or correct the path there.",
	doctor.ClientOther:      "Enter the installed one: yett connect; the broker accepts no other one.",
	doctor.ClientRelative:   "Write the whole path of yett-mcp there.",
	doctor.ClientUnreadable: "Look at the file's permissions and size.",
	doctor.ClientSandboxed:  "Let it run outside of the sandbox, or give the sandbox the socket's directory: yett status names it.",
	doctor.NoClient:         "Enter it where your agent keeps its MCP servers: yett connect.",
	doctor.AsRoot:           "Run broker and agents as an ordinary account.",
	doctor.ProxyIgnored:     "Where APIs are reached through a proxy only, name it in the access file: proxy = \"http://HOST:PORT\" of the credential.",
	doctor.SystemUnknown:    "Nothing can be said about it here.",
}

func (a *app) advice(c doctor.Cause) string { return approval.Printable(a.here(nextSteps[c])) }
