"""The HTTP API with `httpx`: approves a call, and streams a turn. The argument `decline` declines the call instead."""

import json
import os
import sys

import httpx

URL, KEY = os.environ.get("URL", "http://localhost:8787"), os.environ["KEY"]
decision = sys.argv[1] if len(sys.argv) > 1 else "approve"

api = httpx.Client(base_url=f"{URL}/v1", headers={"authorization": f"Bearer {KEY}"}, timeout=600)
session = {"permissions": {"tools": {"current_time": "ask"}}}
path = f"/sessions/{api.post('/sessions', json=session).raise_for_status().json()['id']}"

turn = api.post(f"{path}/messages", json={"content": "/tool current_time {}"}).raise_for_status().json()
while turn["status"] == "waiting":
    call = turn["pending"][0]
    print(f"{call['name']} {call['args']}: {decision}")
    body = {"decision": decision, "args_hash": call["args_hash"]}
    turn = api.post(f"{path}/approvals/{call['call_id']}", json=body).raise_for_status().json()
print(turn["reply"]["text"])

headers = {"accept": "text/event-stream"}
with api.stream("POST", f"{path}/messages", json={"content": "Hello"}, headers=headers) as response:
    response.raise_for_status()
    rest = ""
    # `iter_lines` would also split at characters such as U+2028, which the text of an event may contain.
    for text in response.iter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                if event["type"] == "message.delta":
                    print(event["delta"], end="", flush=True)
print()
