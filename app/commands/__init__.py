"""The shell commands that do more than call one function; `app/cli.py` declares their options."""
