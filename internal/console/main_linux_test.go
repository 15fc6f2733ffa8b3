package console_test

import (
	"os"
	"testing"

	"github.com/yett-broker/yett/internal/yetttest"
)

func TestMain(m *testing.M) {
	code := yetttest.Main(m)
	closeBrowser()
	os.Exit(code)
}
