"""LLaDA2 block-diffusion inference: checkpoint to text."""
