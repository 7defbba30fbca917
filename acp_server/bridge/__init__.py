"""ACP methods over sessions: handlers, event-to-update projection, tool presentation."""
