package vigil_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"signalbox/internal/server/vigil"
)

func TestACredentialIsLookedAtOnceForAllItsStreams(t *testing.T) {
	var v vigil.Vigil
	var looks atomic.Int64
	for range 1000 {
		_, end := v.Watch(t.Context(), vigil.Of("Bearer one"), func(context.Context) bool { looks.Add(1); return false })
		defer end()
	}
	v.Look(t.Context())
	if looks.Load() != 1 {
		t.Errorf("%d looks", looks.Load())
	}
}

func TestStreamsEndWithTheirCredentialAndOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v vigil.Vigil
		var revoked atomic.Bool
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- v.Run(ctx) }()
		watch := func(name string, lost func(context.Context) bool) (context.Context, func()) {
			return v.Watch(t.Context(), vigil.Of(name), lost)
		}
		left, end := watch("a", func(context.Context) bool { return revoked.Load() })
		first, endFirst := watch("a", func(context.Context) bool { return revoked.Load() })
		other, endOther := watch("b", func(context.Context) bool { return false })
		defer endFirst()
		defer endOther()
		end()
		if left.Err() == nil {
			t.Error("who has left is still watched")
		}
		time.Sleep(10 * time.Second) // of the bubble
		if first.Err() != nil || other.Err() != nil {
			t.Error("a stream ended without a reason")
		}
		revoked.Store(true)
		<-first.Done()
		again, endAgain := watch("a", func(context.Context) bool { return false })
		defer endAgain()
		time.Sleep(10 * time.Second)
		if other.Err() != nil || again.Err() != nil {
			t.Error("a stream of another credential, or a new one, ended")
		}
		stop()
		<-done
	})
}

func TestPartsOfACredentialCannotBeMovedBetweenThem(t *testing.T) {
	if vigil.Of("ab", "c") == vigil.Of("a", "bc") || vigil.Of("a") == vigil.Of("a", "") {
		t.Error("two credentials are one")
	}
}
