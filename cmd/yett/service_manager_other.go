//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/yett-broker/yett/internal/install"
)

// manager would be launchd; yett serve does not run where it does yet.
type manager struct{}

var errNoManager = errors.New("yett serve does not run on this system yet, so no service can be installed")

func findManager(install.Place) (*manager, error) { return nil, errNoManager }

func (m *manager) name() string                       { return "none" }
func (m *manager) reload(context.Context) error       { return errNoManager }
func (m *manager) enable(context.Context) error       { return errNoManager }
func (m *manager) disable(context.Context) error      { return errNoManager }
func (m *manager) state(context.Context) managerState { return managerState{} }
