package web

import (
	"context"

	"signalbox/internal/address"
	"signalbox/internal/alarm"
)

// closeAlarm closes an alarm.
func (w *Web) closeAlarm(r *Request) (Result, error) {
	_, err := w.Alarms.Close(r.Context(), r.Who, r.Field("id"), r.Field("note"))
	return Result{To: address.Alarms.At(), Flash: "Closed."}, err
}

// openAlarms are the newest alarms that are open, for the frame, and how many are. If they cannot be read the page is
// shown without them, and says nothing of alarms.
func (w *Web) openAlarms(ctx context.Context) (newest []alarm.Alarm, all int64) {
	newest, err := w.Alarms.List(ctx, false)
	if err == nil && len(newest) > 0 {
		all, err = w.Alarms.Open(ctx)
	}
	if err != nil {
		w.Log.Warn("cannot read the alarms", "error", err.Error())
	}
	return newest, all
}
