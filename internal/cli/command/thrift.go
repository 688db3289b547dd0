package command

import "runtime/debug"

// thriftPercent is the garbage allowed beside live memory before a collection, in
// percent; Go's default is 100.
const thriftPercent = 20

// Thrift makes a process that mostly waits use little memory: it returns what the start has
// used, and collects garbage early. A machine may have many such processes, one for each
// supervised run.
func Thrift() {
	debug.SetGCPercent(thriftPercent)
	debug.FreeOSMemory()
}
