package action

// Relations between two live processes, as in Kinship.
const (
	KinNone       = "none"       // nothing in common but who adopts orphans
	KinSame       = "same"       // one process
	KinDescendant = "descendant" // the first was started by the second or by what it started
	KinAncestor   = "ancestor"   // the other way round
	KinCommon     = "common"     // a third process started both, directly or not
)

// Kinship is what the kernel says two live processes have in common at one
// moment: a fact for a record, never a ground to allow or to refuse. A process
// leaves its terminal with setsid and its ancestors by outliving its parent,
// so what is not here proves nothing; and what is here does not say who
// steers whom, since everything in one terminal window is kin.
type Kinship struct {
	Relation string   `json:"relation"`
	Terminal string   `json:"terminal,omitempty"` // the controlling terminal of both
	Through  *Kinsman `json:"through,omitempty"`  // of KinCommon: the nearest ancestor of both
	Cut      bool     `json:"cut,omitempty"`      // a chain was not followed to its end: KinNone is not seen, not none
}

// Shared reports whether the processes have anything in common.
func (k Kinship) Shared() bool { return k.Terminal != "" || k.Relation != KinNone }

// Kinsman is an ancestor of two processes. Name is the process's own choice.
type Kinsman struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}
