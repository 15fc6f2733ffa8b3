package yetttest

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	code := Main(m, installNode, serveSSH, buildStatic, startSecond, prepareCards, buildReleases, mountSmallDisk)
	unmountSmallDisk()
	stopSSH()
	stopSecond()
	if err := finishCards(); err != nil {
		code = complain(err)
	}
	os.Exit(code)
}
