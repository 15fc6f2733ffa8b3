package doctor_test

import (
	"os"
	"testing"

	"github.com/yett-broker/yett/internal/yetttest"
)

func TestMain(m *testing.M) {
	if play := roles[os.Getenv(roleVariable)]; play != nil {
		os.Exit(play())
	}
	os.Exit(yetttest.Main(m))
}
