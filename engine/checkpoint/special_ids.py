"""Mask and stop ids stand in three files of a checkpoint; here they are read and held against each
other."""

import json
from pathlib import Path

from engine.checkpoint.tokenizer import Tokenizer
from engine.config import CheckpointError, ModelConfig, read_json


def read_special_ids(folder: Path, vocab_size: int) -> tuple[int | None, tuple[int, ...]]:
    """(mask id, stop ids) as far as generation_config.json and config.json tell.

    Raises CheckpointError for what is no token of the vocabulary, or both mask and stop.
    """
    generation: dict = {}
    if (folder / "generation_config.json").exists():
        generation = read_json(folder / "generation_config.json")
    config = read_json(folder / "config.json")
    mask = generation.get("mask_token_id", config.get("mask_token_id"))
    stops = generation.get("eos_token_id", config.get("eos_token_id", config.get("pad_token_id")))
    stops = stops if isinstance(stops, list) else [] if stops is None else [stops]
    named = [*stops, *([] if mask is None else [mask])]
    if not all(type(id) is int and 0 <= id < vocab_size for id in named) or mask in stops:
        raise CheckpointError(
            f"{folder}: config.json and generation_config.json name {json.dumps(mask)[:80]} as the "
            f"mask and {json.dumps(stops)[:80]} as end tokens; they must differ and be whole "
            f"numbers below {vocab_size:,}."
        )
    return mask, tuple(stops)


def agree(
    tokenizer: Tokenizer | None,
    mask_id: int | None,
    stop_ids: tuple[int, ...],
    config: ModelConfig,
    folder: Path,
) -> tuple[int | None, tuple[int, ...]]:
    """Mask and stop ids that the tokenizer (where there is one) and the configs agree on.

    Raises CheckpointError where they do not.
    """
    if tokenizer is None:
        return mask_id, stop_ids
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
    for id in stop_ids:
        if not tokenizer.is_added(id):
            raise CheckpointError(
                f"{folder}: the config ends answers at token {id}, which is ordinary text in "
                "tokenizer.json; download both again."
            )
    return tokenizer.mask_id, stops
