"""Research: an agent with tools, one of which needs approval."""
