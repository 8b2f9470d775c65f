"""The demo model's corpus: tasks with checkable answers, the held-out split, the vocabulary."""
