"""The LLaDA2 network."""
