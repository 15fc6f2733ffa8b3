package main

import (
	"strings"
	"testing"
)

func TestTryProgramsOfTheDemonstrationAreHidden(t *testing.T) {
	for _, c := range newRoot(&app{}).Commands() {
		if strings.HasPrefix(c.Name(), "try-") && !c.Hidden {
			t.Errorf("%s is shown", c.Name())
		}
	}
}
