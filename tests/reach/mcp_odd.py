"""An MCP server without an SDK, for behaviour that no SDK allows: bad tools, any error, a changing list."""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

OBJECT = {"type": "object"}
lock = threading.Lock()
releases = threading.Event()


def tools() -> list[dict[str, Any]]:
    if len(sys.argv) > 1 and os.path.exists(sys.argv[1]):
        return [{"name": "newer", "inputSchema": OBJECT}]
    bad_pattern = {"type": "object", "properties": {"q": {"type": "string", "pattern": "(?<n>[a-z"}}}
    elsewhere = {"type": "object", "properties": {"q": {"$ref": "https://127.0.0.1/x.json"}}}
    return [
        {"name": "echo", "description": "a\0b", "inputSchema": OBJECT},
        {"name": "transfer", "inputSchema": OBJECT},
        {"name": "limited", "inputSchema": OBJECT},
        {"name": "pid", "inputSchema": OBJECT},
        {"name": "change", "inputSchema": OBJECT},
        {"name": "a.b", "inputSchema": OBJECT},
        {"name": "a/b", "inputSchema": OBJECT},
        {"name": "x" * 65, "inputSchema": OBJECT},
        {"name": "final_result", "inputSchema": OBJECT},
        {"name": "pattern", "inputSchema": bad_pattern},
        {"name": "reference", "inputSchema": elsewhere},
    ]


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(call_id: Any, text: str) -> None:
    send({"id": call_id, "result": {"content": [{"type": "text", "text": text}]}})


def transfer(call_id: Any) -> None:
    releases.wait(20)
    answer(call_id, "transferred")


def called(call_id: Any, name: str) -> None:
    if name == "transfer":
        threading.Thread(target=transfer, args=(call_id,), daemon=True).start()
    elif name == "limited":
        send({"id": call_id, "error": {"code": -32000, "message": "rate limit exceeded"}})
    elif name == "change":
        with open(sys.argv[1], "w", encoding="utf-8"):
            pass
        send({"method": "notifications/tools/list_changed"})
        answer(call_id, "changed")
    elif name == "pid":
        answer(call_id, str(os.getpid()))
    else:
        answer(call_id, name)
        releases.set()


for line in sys.stdin:
    message = json.loads(line)
    call_id, method = message.get("id"), message.get("method")
    if call_id is None:
        continue
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        description = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "odd", "version": "1"}}
        send({"id": call_id, "result": {"protocolVersion": version, **description}})
    elif method == "tools/list":
        send({"id": call_id, "result": {"tools": tools()}})
    elif method == "tools/call":
        called(call_id, message["params"]["name"])
    else:
        send({"id": call_id, "error": {"code": -32601, "message": "there is no such method"}})
