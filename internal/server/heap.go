package server

// Heap is room for the heap of a process that runs a server, to be kept alive for as long. The heap of a server is small,
// and the collector would run twenty times a second under load: it waits until the heap has doubled. Bytes that nobody
// touches take no memory and count as heap.
func Heap() []byte { return make([]byte, 128<<20) }
