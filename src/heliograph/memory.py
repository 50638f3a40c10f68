"""Memories: the protocol of a store, and what a search finds."""

from __future__ import annotations

from heliograph.ports import Memory, MemoryHit

__all__ = ["Memory", "MemoryHit"]
