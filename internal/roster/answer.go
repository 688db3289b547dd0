package roster

import (
	"context"
	"net/http"

	"signalbox/internal/wire"
)

// Answer is a handler that answers with what call returns for the authenticated caller.
func Answer[T any](call func(ctx context.Context, who Identity) (T, error)) wire.Handler {
	return wire.Answer(http.StatusOK, func(r *http.Request) (T, error) {
		return call(r.Context(), From(r.Context()))
	})
}

// AnswerAbout is Answer for a call about what the parameter {name} of the path names.
func AnswerAbout[T any](name string,
	call func(ctx context.Context, who Identity, named string) (T, error),
) wire.Handler {
	return wire.Answer(http.StatusOK, func(r *http.Request) (T, error) {
		return call(r.Context(), From(r.Context()), r.PathValue(name))
	})
}

// AnswerBody is Answer for a call that decodes its body, of at most so many bytes, itself: a
// protocol with an error form of its own, or one that keeps the bytes.
func AnswerBody[T any](status int, most int64,
	call func(ctx context.Context, who Identity, body []byte) (T, error),
) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := wire.Read(w, r, most)
		if err != nil {
			return err
		}
		out, err := call(r.Context(), From(r.Context()), body)
		if err != nil {
			return err
		}
		return wire.Reply(w, status, out)
	}
}
