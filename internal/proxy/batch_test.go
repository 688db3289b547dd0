package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"signalbox/internal/price"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

const (
	batchesPath       = messagesPath + "/batches"
	openAIBatchesPath = "/v1/proxy/openai/v1/batches"
	filesPath         = "/v1/proxy/openai/v1/files"
)

// jobs answers as Anthropic and OpenAI do about one batch each, of two requests that succeed and one that does not.
func jobs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.Copy(io.Discard, r.Body)
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/messages/batches":
		_, _ = io.WriteString(w, `{"id":"msgbatch_1","type":"message_batch","processing_status":"in_progress","results_url":null}`)
	case "GET /v1/messages/batches/msgbatch_1/results":
		w.Header().Set("Content-Type", "application/x-jsonl")
		_, _ = io.WriteString(w, `{"custom_id":"a","result":{"type":"succeeded","message":{"id":"m","model":"claude-sonnet-4-6","content":[],`+
			`"usage":{"input_tokens":1000,"output_tokens":100,"service_tier":"batch"}}}}`+"\n"+
			`{"custom_id":"b","result":{"type":"errored","error":{"type":"api_error"}}}`+"\n"+
			`{"custom_id":"c","result":{"type":"succeeded","message":{"id":"m","model":"claude-sonnet-4-6","content":[],`+
			`"usage":{"input_tokens":1000,"output_tokens":300,"service_tier":"batch"}}}}`) // and no line end
	case "POST /v1/files":
		_, _ = io.WriteString(w, `{"id":"file-in","object":"file","bytes":1,"purpose":"batch"}`)
	case "POST /v1/batches":
		_, _ = io.WriteString(w, `{"id":"batch_1","object":"batch","status":"validating","input_file_id":"file-in"}`)
	case "GET /v1/batches/batch_1":
		_, _ = io.WriteString(w, `{"id":"batch_1","object":"batch","status":"completed","output_file_id":"file-out","request_counts":{"completed":2}}`)
	case "GET /v1/batches/batch_2":
		_, _ = io.WriteString(w, `{"id":"batch_1","object":"batch","status":"failed","output_file_id":null,"request_counts":{"completed":0}}`)
	case "GET /v1/files/file-out/content", "GET /v1/files/file-else/content":
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = io.WriteString(w, `{"id":"batch_req_1","custom_id":"a","response":{"status_code":200,"body":{"id":"c","model":"gpt-4o-2024-08-06",`+
			`"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":0}}}},"error":null}`+"\n"+
			`{"id":"batch_req_2","custom_id":"b","response":{"status_code":400,"body":{}},"error":null}`+"\n"+
			`{"id":"batch_req_3","custom_id":"c","response":{"status_code":200,"body":{"id":"c","model":"gpt-4o-2024-08-06",`+
			`"choices":[],"usage":{"prompt_tokens":1000,"completion_tokens":300}}},"error":null}`+"\n")
	case "GET /v1/files/file-text/content":
		_, _ = io.WriteString(w, "{\"custom_id\": 5}\nplain text\n")
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

const batchAsk = `{"requests":[{"custom_id":"a","params":{"model":"claude-sonnet-4-6","max_tokens":1000,"messages":[]}},` +
	`{"custom_id":"b","params":{"model":"claude-sonnet-4-6","max_tokens":1000,"messages":[{"content":"\"}]"}]}},` +
	`{"custom_id":"c","params":{"model":"claude-sonnet-4-6","max_tokens":1000,"messages":[]}}]}`

// fileAsk is a file of requests as a client uploads it.
const fileAsk = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; " +
	"name=\"file\"; filename=\"a.jsonl\"\r\n\r\n" +
	`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","max_tokens":1000,"messages":[]}}` + "\n" +
	`{"custom_id":"b","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","max_tokens":1000,"messages":[]}}` + "\n" +
	`{"custom_id":"c","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o","n":3,"max_tokens":1000,"messages":[]}}` +
	"\r\n--b--\r\n"

// results are the records of results on the ledger.
func (n *node) results() (all []call) {
	n.T.Helper()
	for _, r := range n.called(0) {
		for _, one := range r.Calls {
			if one.Batch != "" {
				all = append(all, one)
			}
		}
	}
	return all
}

// due is what was noted as due.
func (n *node) due() (all []struct {
	Agent, ID, What, Model string
	Requests               int
	price.Usage
	price.Cost
},
) {
	n.T.Helper()
	for _, e := range n.Entries("proxy.due") {
		all = append(all, struct {
			Agent, ID, What, Model string
			Requests               int
			price.Usage
			price.Cost
		}{})
		if err := json.Unmarshal(e.Body, &all[len(all)-1]); err != nil {
			n.T.Fatal(err)
		}
	}
	return all
}

// A batch counts for budgets when it is made, by what it may cost, and by what it has cost when its results come: once,
// however often and wherever they are fetched, and after a restart.
func TestABatchIsCountedOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		n.provider.answers(jobs)
		for _, rules := range []string{"", "  - {name: x, on: [prompt], when: 'event.model == \"x\"', then: block}\n"} {
			n.apply(rules)
		}
		if got := n.call("POST", batchesPath, batchAsk, "X-Amp-Project", "deck-1"); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		n.called(1)
		d := n.due()
		// Half of 3,000 tokens of output at 15 dollars, and of the bytes of the input at 3.
		if len(d) != 1 || d[0].What != "batch" || d[0].ID != "msgbatch_1" || d[0].Requests != 3 || !d[0].Estimated || d[0].Tier != "batch" ||
			d[0].Output != 3000 || d[0].Nanos < 22_500_000 || d[0].Nanos > 23_500_000 {
			t.Fatalf("%+v", d)
		}
		// A budget sees it as reserved, so another call is put off.
		n.apply("  - {name: day, on: [prompt], when: 'recent.cost(\"24h\") > 0.02', then: block, reason: Spent.}\n")
		n.provider.json(formCases[0].reply)
		if got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false)); got.status != 429 {
			t.Errorf("%+v", got)
		}
		n.provider.answers(jobs)
		_, other := n.AgentWithKey("other")
		first := n.call("GET", batchesPath+"/msgbatch_1/results", "")
		second := n.call("GET", batchesPath+"/msgbatch_1/results", "", "X-Api-Key", other)
		n.call("GET", batchesPath+"/msgbatch%5F1/results", "")
		if first.status != 200 || first.body != second.body || !strings.HasSuffix(first.body, "}}}}") {
			t.Fatalf("%+v %+v", first, second)
		}
		testbed.Until(t, "the results", func() bool { return len(n.Entries("proxy.settled")) > 0 })
		check := func() {
			t.Helper()
			all := n.results()
			// 2,000 tokens of input at 3 dollars and 400 of output at 15, at half of the price.
			if len(all) != 1 || all[0].Results != 2 || all[0].Input != 2000 || all[0].Output != 400 || all[0].Estimated ||
				all[0].Nanos != (2000*3000+400*15000)/2 || all[0].Batch != "msgbatch_1" {
				t.Errorf("%+v", all)
			}
		}
		check()
		n.provider.json(strings.ReplaceAll(formCases[0].reply, "bash", "read"))
		if got := n.call("POST", messagesPath, fmt.Sprintf(messageAsk, false)); got.status != 200 {
			t.Errorf("what was reserved is not released: %+v", got)
		}
		n.called(3)
		n.WantClean()
		n.stop()
		n.DB.Close()
		again := restart(t, address, n.key, n.operator)
		again.agent = n.agent
		again.provider.answers(jobs)
		again.call("GET", batchesPath+"/msgbatch_1/results", "")
		testbed.Until(t, "the second download", func() bool { return len(again.of(n.agent.ID)) >= 6 })
		n = again
		check()
	})
}

func TestABatchOfOpenAIIsCountedByItsFiles(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.provider.answers(jobs)
		n.apply("  - {name: dear, on: [prompt], when: 'event.kind == \"batch\" && event.estimate_usd > 1.0', then: block, reason: Dear.}\n" +
			"  - {name: known, on: [prompt], when: 'event.model == \"gpt-4\"', then: block}\n")
		// Of a file that was not seen nothing is known, so it may be the largest.
		if got := n.call("POST", openAIBatchesPath, `{"input_file_id":"file-else","endpoint":"/v1/chat/completions"}`); got.status != 403 {
			t.Errorf("%+v", got)
		}
		if got := n.call("POST", filesPath, fileAsk, "Content-Type", "multipart/form-data; boundary=b"); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		testbed.Until(t, "the file", func() bool { return len(n.due()) == 1 })
		// Five replies of 1,000 tokens at 10 dollars, at half of the price.
		if d := n.due()[0]; d.What != "file" || d.ID != "file-in" || d.Requests != 3 || d.Output != 5000 || d.Nanos < 25_000_000 || d.Nanos > 26_000_000 {
			t.Errorf("%+v", d)
		}
		if got := n.call("POST", openAIBatchesPath, `{"input_file_id":"file-in","endpoint":"/v1/chat/completions"}`); got.status != 200 {
			t.Fatalf("%+v", got)
		}
		testbed.Until(t, "the batch", func() bool { return len(n.due()) == 2 })
		if d := n.due()[1]; d.What != "batch" || d.ID != "batch_1" || d.Output != 5000 || d.Model != "gpt-4o" {
			t.Errorf("%+v", d)
		}
		// A file that looks like results and is not this batch's settles nothing.
		n.call("GET", filesPath+"/file-text/content", "")
		n.call("GET", filesPath+"/file-else/content", "")
		testbed.Until(t, "the other file", func() bool { return len(n.results()) == 1 })
		if n.Newest("proxy.settled").Subject != "file-else" {
			t.Errorf("%+v", n.Newest("proxy.settled"))
		}
		n.call("GET", openAIBatchesPath+"/batch_1", "")
		testbed.Until(t, "where the results are", func() bool { return len(n.Entries("proxy.filed")) == 1 })
		for range 3 {
			if got := n.call("GET", filesPath+"/file-out/content", ""); got.status != 200 || !strings.Contains(got.body, "batch_req_3") {
				t.Fatalf("%+v", got)
			}
		}
		testbed.Until(t, "the results", func() bool { return len(n.Entries("proxy.settled")) == 2 })
		testbed.Until(t, "all downloads", func() bool { return len(n.of(n.agent.ID)) >= 10 })
		all := n.results()
		if len(all) != 2 || all[1].Batch != "batch_1" || all[1].Input != 2000 || all[1].Output != 400 ||
			all[1].Nanos != (2000*2500+400*10000)/2 || all[1].Results != 2 {
			t.Errorf("%+v", all)
		}
		n.WantClean()
	})
}

// A batch that failed takes nothing, and one whose results nobody fetches in a day costs what it may have.
func TestABatchThatNobodyFetchesIsCountedAtLast(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.provider.answers(jobs)
		n.call("POST", batchesPath, batchAsk)
		n.call("POST", openAIBatchesPath, `{"input_file_id":"file-in"}`)
		testbed.Until(t, "both", func() bool { return len(n.due()) == 2 })
		n.call("GET", openAIBatchesPath+"/batch_2", "")
		testbed.Until(t, "the failure", func() bool { return len(n.Entries("proxy.settled")) == 1 })
		if all := n.results(); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		n.Move(27 * time.Hour)
		testbed.Until(t, "the end", func() bool { return len(n.Entries("proxy.settled")) == 2 })
		if all := n.results(); len(all) != 1 || !all[0].Estimated || all[0].Output != 3000 || all[0].Nanos == 0 {
			t.Errorf("%+v", all)
		}
		n.call("GET", batchesPath+"/msgbatch_1/results", "")
		n.called(5)
		if all := n.results(); len(all) != 1 {
			t.Errorf("%+v", all)
		}
		n.WantClean()
	})
}

// A response that is made in the background is counted by what it may cost, until it is fetched.
func TestAResponseInTheBackgroundIsCountedOnce(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.provider.json(`{"id":"resp_9","status":"queued","model":"gpt-4o","output":[],"usage":null}`)
		if got := n.call("POST", responsesPath, `{"model":"gpt-4o","background":true,"input":"x","max_output_tokens":500}`); got.status != http.StatusOK {
			t.Fatalf("%+v", got)
		}
		n.called(1)
		testbed.Until(t, "what is due", func() bool { return len(n.due()) > 0 })
		if all := n.due(); len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		if d := n.due()[0]; d.What != "response" || d.ID != "resp_9" || d.Output != 500 || d.Nanos == 0 {
			t.Errorf("%+v", d)
		}
		n.call("GET", responsesPath+"/resp_9", "")
		n.provider.json(`{"id":"resp_9","status":"completed","model":"gpt-4o","output":[],"usage":{"input_tokens":10,"output_tokens":20}}`)
		for range 2 {
			n.call("GET", responsesPath+"/resp_9", "")
		}
		// One that was counted when it was made is not counted again.
		n.provider.json(`{"id":"resp_8","status":"completed","model":"gpt-4o","output":[],"usage":{"input_tokens":10,"output_tokens":20}}`)
		n.call("GET", responsesPath+"/resp_8", "")
		testbed.Until(t, "the response", func() bool { return len(n.results()) == 1 })
		n.called(6)
		if all := n.results(); len(all) != 1 || all[0].Input != 10 || all[0].Output != 20 || all[0].Nanos != 10*2500+20*10000 {
			t.Errorf("%+v", all)
		}
		n.WantClean()
	})
}

// What pages show is what was fetched: estimates are for budgets.
func TestCountersHaveTheResultsOfABatch(t *testing.T) {
	n := one(t)
	n.provider.answers(jobs)
	n.call("POST", batchesPath, batchAsk)
	n.called(1)
	n.call("GET", batchesPath+"/msgbatch_1/results", "")
	testbed.Until(t, "the results", func() bool { return len(n.results()) == 1 })
	sum := int64(0)
	for _, e := range n.Entries("proxy.called") {
		sum += costOf(t, e.Body)
	}
	if want := int64(2000*3000+400*15000) / 2; sum != want {
		t.Errorf("%d, and should be %d", sum, want)
	}
}

// costOf is what the calls of an entry cost.
func costOf(t *testing.T, body []byte) (nanos int64) {
	t.Helper()
	var r recorded
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	for _, one := range r.Calls {
		nanos += one.Nanos
	}
	return nanos
}
