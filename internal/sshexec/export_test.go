package sshexec

// KeyOf is for tests of what may share a connection.
var KeyOf = keyOf
