"""Heliograph for processes outside the application: report results, take work for tools, send messages, stop turns, and
put together what agents read."""

from heliograph.client.core import Client
from heliograph.client.replies import Command, StopResult

__all__ = ["Client", "Command", "StopResult"]
