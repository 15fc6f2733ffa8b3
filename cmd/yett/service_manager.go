package main

// managerState is what the service manager says of the broker's units.
type managerState struct {
	Enabled   bool `json:"enabled"`
	Listening bool `json:"listening"`
	Running   bool `json:"running"`
	PID       int  `json:"pid"`
}
