"""The benchmark: prompts, measured answers, figures, comparisons. No torch, no printing."""
