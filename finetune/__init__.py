"""Training: the demo model's pre-training and ORL post-training."""
