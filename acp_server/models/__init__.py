"""Language models: the protocol they meet, the loop that asks them, the scripted model."""
