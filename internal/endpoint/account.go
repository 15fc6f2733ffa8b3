package endpoint

import "fmt"

// Account is the account that this process runs for and its home directory, as
// the account database has it.
func Account() (uid int, home string, err error) {
	if uid, err = account(); err != nil {
		return 0, "", err
	}
	if home, err = homeOf(uid); err != nil {
		return 0, "", fmt.Errorf("finding the home directory of uid %d: %w", uid, err)
	}
	return uid, home, nil
}
