package main

// managerState is what the service manager says of the broker's units.
type managerState struct {
	Enabled   bool `json:"enabled"`
	Listening bool `json:"listening"`
	Running   bool `json:"running"`
	PID       int  `json:"pid"`

	socketUnit string // the file that the manager reads the socket unit from
	starts     string // the program that its service starts
}
