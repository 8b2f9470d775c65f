"""From a prompt to blocks of tokens."""
