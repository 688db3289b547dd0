package command

import "runtime/debug"

// thriftPercent is how much garbage there may be beside what is in use.
const thriftPercent = 20

// Thrift gives back what the start of the program took, and lets it take little: of processes that
// wait most of their time there may be many.
func Thrift() {
	debug.SetGCPercent(thriftPercent)
	debug.FreeOSMemory()
}
