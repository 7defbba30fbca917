"""The Agent Client Protocol over stdio, and the agents that answer prompts."""
