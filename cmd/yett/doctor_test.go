package main

import (
	"strings"
	"testing"

	"github.com/yett-broker/yett/internal/doctor"
)

// TestDoctorAdvice: each cause has a next step, and no step is for nothing.
func TestDoctorAdvice(t *testing.T) {
	a := &app{}
	for _, c := range doctor.Causes {
		if s := a.advice(c); !strings.HasSuffix(s, ".") || strings.Contains(s, "$") {
			t.Errorf("%s: no next step, but %q", c, s)
		}
	}
	if len(nextSteps) != len(doctor.Causes) {
		t.Errorf("%d next steps for %d causes", len(nextSteps), len(doctor.Causes))
	}
	newRoot(a)
	a.home = "/h"
	if s := a.advice(doctor.NoVault); s != "Make it, and start the broker: yett up --home /h." {
		t.Errorf("the home is not named: %q", s)
	}
}
