"""The turn engine: queue, running turn, its log, settings, and the ports to the outside."""
