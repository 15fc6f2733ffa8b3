package endpoint

import (
	"errors"
	"fmt"
)

// Hold keeps brokers from starting on a location until release is called. Where
// one runs the error is *InUseError.
func Hold(loc Location) (release func(), err error) {
	uid, err := account()
	if err != nil {
		return nil, err
	}
	mine, err := self(loc.Socket)
	if err != nil {
		return nil, err
	}
	home, err := openDirectory(loc.Home, uid, true)
	if err != nil {
		return nil, fmt.Errorf("opening the data directory: %w", err)
	}
	defer home.close()
	l, other, err := takeLock(home, mine)
	if errors.Is(err, errHeld) {
		return nil, inUse(home, other, loc.Socket)
	}
	if err != nil {
		return nil, err
	}
	return l.release, nil
}
