"""Runs the scenarios of the matrix with one SDK, and prints what its user would see: one
line of JSON for each. Arguments: the SDK, the two addresses, the agents' keys, and how the names of the scenarios
begin if not all are meant."""

import json
import sys
import threading

sdk, base, silent_base, keys_text = sys.argv[1:5]
only = sys.argv[5] if len(sys.argv) > 5 else ""
keys = json.loads(keys_text)
with_anthropic = sdk.startswith("anthropic")
if with_anthropic:
    from anthropic import Anthropic as SDK
else:
    from openai import OpenAI as SDK


def client(scenario, silent=False, agent="plain", headers=None, **options):
    at = (silent_base if silent else base) + "/v1/proxy" + ("" if with_anthropic else "/openai/v1")
    headers = {"x-scenario": scenario, **(headers or {})}
    return SDK(api_key=keys["silent" if silent else agent], base_url=at, default_headers=headers, **options)


def read(message):
    """What came whole. What has another shape has nothing in it."""
    if with_anthropic:
        blocks = message.content or []
        return {
            "text": "".join(b.text for b in blocks if b.type == "text"),
            "tools": [b.name + " " + json.dumps(b.input) for b in blocks if b.type == "tool_use"],
        }
    said = message.choices[0].message if message.choices else None
    if said is None:
        return {"text": "", "tools": []}
    return {
        "text": said.content or "",
        "tools": [t.function.name + " " + t.function.arguments for t in said.tool_calls or []],
    }


def ask(c, scenario, stream):
    messages = [{"role": "user", "content": scenario}]
    if with_anthropic:
        return c.messages.create(model="claude-sonnet-4-6", max_tokens=50, messages=messages, stream=stream)
    return c.chat.completions.create(model="gpt-4o", messages=messages, stream=stream)


def follow(stream):
    """What came as a stream."""
    text, tool, given, ended = "", "", "", False
    for e in stream:
        if with_anthropic:
            if e.type == "content_block_start" and e.content_block.type == "tool_use":
                tool = e.content_block.name
            if e.type == "content_block_delta":
                text += getattr(e.delta, "text", "")
                given += getattr(e.delta, "partial_json", "")
            ended = ended or e.type == "message_stop"
            continue
        for choice in e.choices:
            text += choice.delta.content or ""
            for t in choice.delta.tool_calls or []:
                tool += t.function.name or ""
                given += t.function.arguments or ""
            ended = ended or choice.finish_reason is not None
    return {"text": text, "tools": [tool + " " + given] if tool else [], "ended": ended}


def with_helper(c, scenario):
    with c.messages.stream(model="claude-sonnet-4-6", max_tokens=50, messages=[{"role": "user", "content": scenario}]) as s:
        return read(s.get_final_message())


# However long the operator takes to decide on a busy machine.
patient = {"max_retries": 20}
impatient = {"timeout": 20.0, **patient}
later = {"headers": {"prefer": "respond-async"}}
scenarios = {
    "pass": (False, {}),
    "pass-stream": (True, {}),
    "held-approve": (False, impatient),
    "held-stream-approve": (True, impatient),
    "quick-reject": (False, {"silent": True}),
    "late-reject": (False, patient),
    "stream-reject": (True, {}),
    "quick-expire": (False, {"silent": True}),
    "late-expire": (False, patient),
    "stream-expire": (True, {}),
    "soft-reject": (False, {"agent": "soft", **patient}),
    "soft-stream-reject": (True, {"agent": "soft"}),
    "pending-never": (False, {"agent": "short"}),
    "pending-stream-never": (True, {"agent": "short"}),
    "async-never": (False, later),
    "async-stream-never": (True, later),
    "silent-late": (False, {"silent": True, "timeout": 8.0, "max_retries": 1}),
    "deferred": (False, {"max_retries": 1}),
    "overloaded": (False, {"max_retries": 1}),
    "redirected": (False, {"max_retries": 0}),
    "broken-stream": (True, {}),
}
if with_anthropic:
    scenarios["helper-pass"] = (True, {})
if only:
    scenarios.update({"restart-approve": (False, {}), "restart-stream-approve": (True, {})})
    scenarios = {name: s for name, s in scenarios.items() if name.startswith(only)}

printing = threading.Lock()


def kind_of(e):
    """What the error is, however it came."""
    body = getattr(e, "body", None)
    if not isinstance(body, dict):
        return ""
    return (body.get("error") or body).get("type")


def run(name, stream, options):
    scenario = f"{sdk}/one/{name}"
    out = {"id": scenario, "scenario": name, "api": "one", "sdk": sdk}
    try:
        c = client(scenario, **options)
        if name == "helper-pass":
            out.update(with_helper(c, scenario))
        else:
            got = ask(c, scenario, stream)
            out.update(follow(got) if stream else read(got))
    except Exception as e:  # whatever its user would see
        out.update(error=type(e).__name__, message=str(e), status=getattr(e, "status_code", 0), kind=kind_of(e))
    if name == "silent-late":
        try:  # the operator decides now; the same call has its reply
            c = client(scenario, silent=True, timeout=60.0, headers={"x-again": "yes"})
            out["again"] = read(ask(c, scenario, False))
        except Exception as e:
            out["again"] = {"error": type(e).__name__ + " " + str(e)}
    with printing:
        print(json.dumps(out), flush=True)


# First those whose time does not matter: they load and warm up everything.
for timed in (False, True):
    threads = [
        threading.Thread(target=run, args=(name, stream, options))
        for name, (stream, options) in scenarios.items()
        if ("timeout" in options) == timed
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
