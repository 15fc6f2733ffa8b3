package main

import (
	"fmt"
	"os"
	"time"
)

// measureCost prints the processor time of one brokered GET by process, with one
// caller and with several at once, beside that of a direct one. It is less
// disturbed by what else runs on the machine than a duration is.
func (b *bench) measureCost(calls int) error {
	processes := []struct {
		name string
		pid  int
	}{{"client", os.Getpid()}, {"broker", b.serve.Process.Pid}, {"upstream", b.up.Process.Pid}}
	for _, kind := range []struct {
		name string
		call func() error
	}{{"direct", b.getDirect}, {"brokered", b.getBrokered}} {
		for _, clients := range []int{1, 16} {
			before := make([]time.Duration, len(processes))
			for i, p := range processes {
				before[i] = processorTime(p.pid)
			}
			begin := time.Now()
			if err := together(clients, calls/clients, kind.call); err != nil {
				return err
			}
			n := time.Duration(calls / clients * clients)
			took := time.Since(begin) / n
			line, all := "", time.Duration(0)
			for i, p := range processes {
				used := (processorTime(p.pid) - before[i]) / n
				all += used
				line += fmt.Sprintf(", %s %v", p.name, round(used))
			}
			fmt.Printf("%v of processors for a %s GET, %d at once%s; one each %v\n", round(all), kind.name, clients, line, round(took))
		}
	}
	return nil
}
