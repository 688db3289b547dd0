"""Runs the snippets of the specification as they stand. What they leave to the reader is
filled in: the key, the endpoint, and the modules that one of them forgets to import.

    drive.py FOLDER ENDPOINT send TO FILE | sign TO | check FOLDER_FOR_FILES | poll | pending | ack ID... | delete ID

The last three are the calls that the specification shows as text, without Python of its own.
"""
import base64
import copy
import datetime
import hashlib
import json
import os
import sys

import requests
from cryptography.hazmat.primitives.serialization import load_pem_private_key

folder, endpoint, command, *rest = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "registrations", "signalbox.local.json")) as f:
    registration = json.load(f)
headers = {"Authorization": "Bearer " + registration["api_key"]}


def snippet(name):
    with open(os.path.join(here, name)) as f:
        source = f.read()
    source = source.replace("amp_live_sk_...", registration["api_key"]).replace("http://localhost:23000/v1", endpoint)
    scope = {"os": os, "requests": requests, "hashlib": hashlib}
    exec(compile(source, name, "exec"), scope)
    return scope


def sign_and_send(to):
    """Signs text that is not ASCII as the specification's verifier hashes it."""
    payload = {"type": "request", "message": "héllo ☕ 😀", "context": {"z": 1.0, "a": {"y": 2.5, "b": [1, "é"]}}}
    subject = "signed by Python"
    digest = hashlib.sha256(json.dumps(payload, separators=(",", ":"), sort_keys=True).encode()).digest()
    text = "|".join([registration["address"], to, subject, "high", "", base64.b64encode(digest).decode()])
    with open(os.path.join(folder, "keys", "private.pem"), "rb") as f:
        key = load_pem_private_key(f.read(), password=None)
    return requests.post(endpoint + "/route", headers=headers, json={
        "to": to, "subject": subject, "priority": "high", "payload": payload, "signature": base64.b64encode(key.sign(text.encode())).decode(),
    }).json()


def check(dest):
    """What the verifier says of each waiting message, and of the same with one letter changed."""
    verify = snippet("verify.py")["verify_signature"]
    download = snippet("download.py")["download_attachment"]
    out = []
    for msg in requests.get(endpoint + "/messages/pending", headers=headers).json()["messages"]:
        forged = copy.deepcopy(msg["payload"])
        forged["message"] += "!"
        out.append({
            "subject": msg["envelope"]["subject"],
            "verified": verify(msg["envelope"], msg["payload"], msg["sender_public_key"]),
            "forged": verify(msg["envelope"], forged, msg["sender_public_key"]),
            "files": [open(download(a, dest), "rb").read().decode() for a in msg["payload"].get("attachments", [])],
        })
    return out


def pending():
    """What waits: the ids, and for how many seconds each message stays in the queue."""
    def moment(text):
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")

    page = requests.get(endpoint + "/messages/pending?limit=10", headers=headers).json()
    return {"count": page["count"], "remaining": page["remaining"], "messages": [{
        "id": m["id"], "stays": (moment(m["expires_at"]) - moment(m["queued_at"])).total_seconds(),
    } for m in page["messages"]]}


def ack(ids):
    answer = requests.post(endpoint + "/messages/pending/ack", headers=headers, json={"ids": ids})
    return {"status": answer.status_code, **answer.json()}


def delete(one):
    answer = requests.delete(endpoint + "/messages/pending/" + one, headers=headers)
    return {"status": answer.status_code, **answer.json()}


if command == "send":
    print(json.dumps(snippet("attach.py")["send_with_attachment"](rest[0], "with a file", "see the file", rest[1])))
elif command == "sign":
    print(json.dumps(sign_and_send(rest[0])))
elif command == "check":
    print(json.dumps(check(rest[0])))
elif command == "pending":
    print(json.dumps(pending()))
elif command == "ack":
    print(json.dumps(ack(rest)))
elif command == "delete":
    print(json.dumps(delete(rest[0])))
elif command == "poll":
    snippet("poll.py")  # it does not end
