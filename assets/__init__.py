"""The embedded demo checkpoint and sample prompts."""
