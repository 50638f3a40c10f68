"""A long session is answered by two workers, the first of which is killed; it is stopped, followed, read back and reopened.

What a message costs at its end is what it costs at its beginning. `python -m bench.long_session` prints the figures.
"""

from __future__ import annotations

import pytest

from bench.long_session import talk

# the last fifth of the messages to the first: bytes of signals are exact, CPU time is noisy where few messages are measured. The server's
# write-ahead log, which bench.long_session prints, also has the commits of other tests and whole pages after a checkpoint
BYTES_MAX = {"log_bytes": 1.02}
TIMES_MAX = {"server_ms": 1.6, "worker_ms": 1.6, "followed_ms": 2.5}


@pytest.mark.parametrize("messages", [
    pytest.param(250, marks=[pytest.mark.more, pytest.mark.timeout(300)]),
    pytest.param(5000, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
])  # fmt: skip
async def test_message_of_a_long_session_costs_what_the_first_ones_did(database_url: str, messages: int) -> None:
    talked = await talk(database_url, messages)
    ratios = talked.ratios()
    assert talked.messages == messages
    too_large = {key: ratios[key] for key, most in (BYTES_MAX | TIMES_MAX).items() if ratios[key] > most}
    assert too_large == {}, talked.costs
