"""Mask and stop ids stand in three files of a checkpoint; here they are held against each other."""

from pathlib import Path

from engine.checkpoint.tokenizer import Tokenizer
from engine.config import CheckpointError, ModelConfig


def agree(
    tokenizer: Tokenizer,
    mask_id: int | None,
    stop_ids: tuple[int, ...],
    config: ModelConfig,
    folder: Path,
) -> tuple[int, tuple[int, ...]]:
    """Mask and stop ids that the tokenizer and the configs agree on. Raises CheckpointError."""
    if tokenizer.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"{folder}: tokenizer.json has {tokenizer.vocab_size:,} tokens, the model only "
            f"{config.vocab_size:,}; they do not belong together, so download both again."
        )
    if tokenizer.mask_id is None:
        raise CheckpointError(
            f"{folder}: tokenizer.json has no <|mask|> token, so this is no LLaDA2 tokenizer."
        )
    if mask_id is not None and mask_id != tokenizer.mask_id:
        raise CheckpointError(
            f"{folder}: the mask is token {tokenizer.mask_id} in tokenizer.json and {mask_id} in "
            "the config; download both again."
        )
    stops = tuple(dict.fromkeys((*tokenizer.stop_ids, *stop_ids)))
    if tokenizer.mask_id in stops:
        raise CheckpointError(
            f"{folder}: token {tokenizer.mask_id} is both the mask and an end token."
        )
    return tokenizer.mask_id, stops
