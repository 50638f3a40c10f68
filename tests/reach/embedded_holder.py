"""A process that holds the embedded server: opens FOLDER VERSION, says its URL, lets go at the end of its input."""

import sys
from pathlib import Path

from heliograph.embedded.server import open_embedded

with open_embedded(Path(sys.argv[1]), version=int(sys.argv[2])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
