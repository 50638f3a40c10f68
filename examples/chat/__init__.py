"""Chat: several turns of one agent, each a message."""
