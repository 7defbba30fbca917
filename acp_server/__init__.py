"""The Agent Client Protocol over stdio, and the agents that answer prompts."""

from acp_server.agents.agent import Agent, agent
from acp_server.agents.errors import PermissionDenied
from acp_server.agents.turn import Turn

__all__ = ["Agent", "PermissionDenied", "Turn", "agent"]
