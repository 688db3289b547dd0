package fault_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
)

func TestThePublicErrorIsFoundInsideOthers(t *testing.T) {
	inner := fault.Wrap(io.ErrUnexpectedEOF, fault.TooLarge, "It has %d bytes.", 7).About("body").With("limit", 5)
	err := fmt.Errorf("read: %w", inner)
	if got := fault.From(err); got != inner {
		t.Errorf("got %#v", got)
	}
	if !fault.Is(err, fault.TooLarge) || fault.Is(err, fault.Internal) || fault.Is(nil, fault.Internal) {
		t.Error("Is does not tell the code")
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is not found")
	}
	want := fault.Error{
		Code: fault.TooLarge, Message: "It has 7 bytes.", Field: "body",
		Details: map[string]any{"limit": 5}, Cause: io.ErrUnexpectedEOF,
	}
	if diff := cmp.Diff(want, *inner, cmp.Comparer(errors.Is)); diff != "" {
		t.Error(diff)
	}
}

func TestAnErrorWithoutAPublicFaceIsInternalAndKeepsItsWordsToItself(t *testing.T) {
	e := fault.From(errors.New("dial 10.1.2.3: secret"))
	if e.Code != fault.Internal || e.Code.Status() != 500 {
		t.Errorf("code %s, status %d", e.Code, e.Code.Status())
	}
	if diff := cmp.Diff("Something went wrong inside Signalbox. The server's log has the cause.", e.Message); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(e.Message+" (dial 10.1.2.3: secret)", e.Error()); diff != "" {
		t.Errorf("the text for the log: %s", diff)
	}
}

func TestACodeThatIsNotInTheCatalogueIsA500(t *testing.T) {
	if got := fault.Code("no_such_code").Status(); got != 500 {
		t.Errorf("got %d", got)
	}
}
