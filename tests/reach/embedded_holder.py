"""A process that opens the embedded server FOLDER VERSION, prints its URL, and closes it at the end of its input."""

import sys
from pathlib import Path

from heliograph.embedded.server import open_embedded

with open_embedded(Path(sys.argv[1]), version=int(sys.argv[2])) as server:
    print(server.url, flush=True)
    sys.stdin.read()
