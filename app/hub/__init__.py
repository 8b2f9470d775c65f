"""Models from a hub into the ordinary hub cache: planned, fetched, checked, and found again."""
