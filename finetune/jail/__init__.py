"""What runs on the other side of the fork: locks itself in, runs code, watches it. Standard library
only, since it is started anew for every program and imports cost time."""
