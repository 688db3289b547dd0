// Package query reads the queries of calls about a queue of mail. It knows no queue.
package query

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// MaxPage is how many messages one call answers at most.
const MaxPage = 1000

// maxPoll is the longest wait of a poll (MSG-57).
const maxPoll = 30 * time.Second

// ReadPoll reads limit, after and wait. since_seq is the name that a draft of the protocol has
// for after.
func ReadPoll(r *http.Request) (limit int, after int64, wait time.Duration, err error) {
	query := r.URL.Query()
	number := func(name, text string, most int64) int64 {
		n, parseErr := strconv.ParseInt(text, 10, 64)
		if err == nil && (parseErr != nil || n < 0) {
			err = fault.New(fault.InvalidField, "%s should be a whole number, 0 or more, and is %.40q.", name, text).About(name)
		}
		return min(n, most)
	}
	limit = int(number("limit", cmp.Or(query.Get("limit"), "100"), MaxPage))
	if limit == 0 && err == nil {
		err = fault.New(fault.InvalidField, "limit should be a whole number from 1 to %d.", MaxPage).About("limit")
	}
	after = number("after", cmp.Or(query.Get("after"), query.Get("since_seq"), "0"), 1<<62)
	if err != nil {
		return 0, 0, 0, err
	}
	if wait, err = wire.QueryWait(r, maxPoll); err != nil {
		e := fault.From(err)
		err = fault.New(fault.InvalidField, "%s", e.Message).About(e.Field)
	}
	return limit, after, wait, err
}
