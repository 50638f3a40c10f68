"""A chat that remembers, streams and continues after a restart: `helio chat chat_heliograph.py:app anna`."""

from bench.three_applications.stubs_heliograph import chatter
from heliograph import Heliograph

app = Heliograph("chat")
app.prompt_agent("assistant", "{message}", system="Be brief.", model=chatter)
