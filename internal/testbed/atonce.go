package testbed

import "sync"

// AtOnce makes calls at the same time, as near as can be, and waits for all of them.
func AtOnce(calls int, call func(i int)) {
	var calling sync.WaitGroup
	begin := make(chan struct{})
	for i := range calls {
		calling.Go(func() {
			<-begin
			call(i)
		})
	}
	close(begin)
	calling.Wait()
}
