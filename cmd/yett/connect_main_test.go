package main

import (
	"os"
	"testing"
)

// asYett is set where a test runs this file as the installed yett.
const asYett = "YETT_TEST_AS_YETT"

func TestMain(m *testing.M) {
	if os.Getenv(asYett) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
