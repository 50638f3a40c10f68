"""The black-box suite: checks of requirements that need only commands and the log of signals of a system.

It imports nothing of the runtime, so it checks Heliograph like any other system. `helio conformance` runs it; see
docs/how-to/conformance.md.
"""
