"""What the author of an agent imports: the agent, the turn handle, calls, declarations."""
