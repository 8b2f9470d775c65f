"""The Textual program; the only place that imports textual."""
