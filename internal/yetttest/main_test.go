package yetttest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := Main(m, installNode, serveSSH, buildStatic, startSecond)
	stopSSH()
	stopSecond()
	os.Exit(code)
}
