"""Research: an agent with tools; one of them needs approval."""
