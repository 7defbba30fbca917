"""What a session is: events, append rules, surface, derived history, repair, invariants. No I/O."""
