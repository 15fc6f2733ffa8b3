package yetttest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := Main(m, installNode, serveSSH)
	stopSSH()
	os.Exit(code)
}
