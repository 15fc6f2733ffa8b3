package main

// account is the ordinary account of the machines.
const account = 64917

// workArgument starts this program as the one that runs the jobs.
const workArgument = "run-the-jobs-of"

// job is one program that a machine runs.
type job struct {
	Name    string
	Argv    []string
	Stdin   string
	Await   string // standard input stays open until this was said
	UID     int
	Env     []string
	Seconds int // its deadline

	Tests bool // it prints results of tests; those that fail run once more
	Again bool // all of it runs once more if it fails

	// What it is judged by, outside of the machine.
	exit    int      // otherwise: its exit code,
	says    []string // what it must say,
	refusal bool     // and whether to show that
}

// message is one line of the second serial port.
type message struct {
	Job     string  `json:"job,omitempty"`
	Line    string  `json:"line,omitempty"`
	Exit    *int    `json:"exit,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Again   string  `json:"again,omitempty"` // the tests that run once more
	Done    bool    `json:"done,omitempty"`
}
