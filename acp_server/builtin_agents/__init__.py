"""The agents that come with the server, and how `--agent` finds one."""
