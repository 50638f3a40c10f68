"""Research: an agent with tools, one of which somebody has to grant."""
