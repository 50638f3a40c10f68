"""The explicit-state model of the kernel: `python -m model`. README.md has the theory."""
