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

// Paging is which page of a listing a caller asks for: how many rows, after which cursor.
type Paging struct {
	Limit  int
	Cursor string // as the page before has given it, "" for the first page
}

// List is a handler that reads ?limit= and ?cursor=, and answers with the page that call returns.
func List[Out any](call func(*http.Request, Paging) (Out, error)) Handler {
	return Answer(http.StatusOK, func(r *http.Request) (Out, error) {
		limit, err := Limit(r)
		if err != nil {
			var none Out
			return none, err
		}
		return call(r, Paging{limit, r.URL.Query().Get("cursor")})
	})
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
