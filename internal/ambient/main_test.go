package ambient

import (
	"os"
	"testing"

	"github.com/yett-broker/yett/internal/yetttest"
)

func TestMain(m *testing.M) { os.Exit(yetttest.Main(m)) }
