"""From files on disk to a model, an adapter, a tokenizer, and back."""
