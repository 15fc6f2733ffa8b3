package action

// Ancestor is one process of the chain that led to a caller. The chain is
// context for a person: nothing is searched in it and nothing follows from it.
type Ancestor struct {
	PID     int    `json:"pid"`
	ExePath string `json:"exe_path"` // empty where the kernel does not show it
}
