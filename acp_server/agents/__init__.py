"""The turn runner and its ports, the handle agents drive, and the built-in agents."""
