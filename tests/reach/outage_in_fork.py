"""`python -m tests.reach.outage_in_fork`: fork while a thread reports an outage, and report another one in the child."""

from __future__ import annotations

import os
import signal

from heliograph.telemetry.otel_outage import ExportOutage

SECONDS = 10


def main() -> None:
    outage = ExportOutage("http://collector:4318")
    with outage._lock:
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)  # ends a child that waits for the lock
            outage.failed(1, "spans")
            outage.succeeded()
            os._exit(0)
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
