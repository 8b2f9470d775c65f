"""From a prompt to blocks of tokens: canvas, cache, steps, and what a rollout remembers."""
