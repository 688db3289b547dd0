package wire

import "net/http"

// The handlers here translate and do nothing else: they decode, call, and encode what the
// call returns. What is decided is decided in the call, which never sees a ResponseWriter.

// Answer is a handler that answers with what call returns.
func Answer[Out any](status int, call func(*http.Request) (Out, error)) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		out, err := call(r)
		if err != nil {
			return err
		}
		return Reply(w, status, out)
	}
}

// Take is a handler that reads a JSON body of at most limit bytes, strictly as ReadJSON does,
// and answers with what call returns.
func Take[In, Out any](status int, limit int64, call func(*http.Request, In) (Out, error)) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var in In
		if err := ReadJSON(w, r, limit, &in); err != nil {
			return err
		}
		out, err := call(r, in)
		if err != nil {
			return err
		}
		return Reply(w, status, out)
	}
}

// Do is a handler that answers without a body when call has succeeded.
func Do(call func(*http.Request) error) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := call(r); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}
