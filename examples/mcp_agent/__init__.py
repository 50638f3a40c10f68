"""An agent around an MCP server."""
