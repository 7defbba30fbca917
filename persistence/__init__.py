"""Durable session logs: the store seam, the write coordinator and the backends."""
