package yetttest

import (
	"io"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv(envSFTP) != "" {
		if err := serveSFTP(); err != nil && err != io.EOF {
			os.Exit(complain(err))
		}
		os.Exit(0)
	}
	code := Main(m, installNode, serveSSH, startSecond, prepareCards, buildReleases, mountSmallDisk)
	unmountSmallDisk()
	stopSSH()
	stopSecond()
	if err := finishCards(); err != nil {
		code = complain(err)
	}
	os.Exit(code)
}
