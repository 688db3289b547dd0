"""A stand-in for Claude Code with an unrestricted shell: it reads commands, asks its hook about each as
Claude Code does, and runs them in its own process tree. With "ask" it runs only what the hook allows;
with "run" it runs everything, as if the policy had let it through; with "only" it only asks."""

import json
import os
import subprocess
import sys

with open(sys.argv[1]) as f:
    hook = json.load(f)["hooks"]["PreToolUse"][0]["hooks"][0]["command"]


def ask(command):
    payload = {
        "session_id": "s-1", "hook_event_name": "PreToolUse", "cwd": os.getcwd(), "tool_name": "Bash",
        "tool_input": {"command": command},
    }
    got = subprocess.run(hook, shell=True, input=json.dumps(payload), capture_output=True, text=True)
    if got.returncode != 0:
        return "deny", got.stderr
    if not got.stdout.strip():
        return "allow", ""
    said = json.loads(got.stdout).get("hookSpecificOutput", {})
    return said.get("permissionDecision", "allow"), said.get("permissionDecisionReason", got.stdout)


for line in sys.stdin:
    call = json.loads(line)
    verdict, reason = ask(call["command"])
    code, output = None, ""
    if call["mode"] == "run" or call["mode"] == "ask" and verdict == "allow":
        ran = subprocess.run(["bash", "-c", call["command"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        code, output = ran.returncode, ran.stdout
    print(json.dumps({"verdict": verdict, "reason": reason, "code": code, "output": output}), flush=True)
