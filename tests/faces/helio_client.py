"""Run one command in a fork of a warm `helio`: `helio_client.py SOCKET COMMAND ARGUMENT...`.

It ends as that fork does, by the same signal too. It passes SIGTERM and SIGINT on, and killing this process kills that fork.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(sys.argv[1])
    request = {"command": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda number, _: server.send(str(number).encode()))
    code = int(server.recv(100) or -9)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
