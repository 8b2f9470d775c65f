"""The engine's face: load a checkpoint once, then turn ids into events, one answer at a time."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from operator import index
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from engine.checkpoint.adapter import load_adapter
from engine.checkpoint.load import Progress, load_model, read_special_ids
from engine.checkpoint.tokenizer import Tokenizer
from engine.config import CheckpointError, DecodeConfig, ModelConfig, PromptTooLongError
from engine.decode.answer import Answer, OnPrefill
from engine.decode.denoise import Denoiser
from engine.decode.kv_cache import KVCache
from engine.decode.plan import Plan
from engine.events import Event
from engine.hardware import pick_device, set_threads
from engine.kernels import ops
from engine.machine.room import require_room_for
from engine.model.transformer import LLaDA2Model

Activations = Literal["auto", "bf16", "nvfp4"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Engine:
    """A loaded model with its KV cache. Not for several threads at once; one answer at a time."""

    def __init__(
        self,
        model: LLaDA2Model,
        tokenizer: Tokenizer | None,
        *,
        mask_id: int | None,
        stop_ids: tuple[int, ...],
        block_length: int = 32,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.mask_id = mask_id
        self.stop_ids = stop_ids
        self.block_length = block_length
        self._cache = KVCache(model.config, self.device, self.dtype)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        dtype: torch.dtype | str | None = None,
        activations: Activations = "auto",
        adapter: str | Path | None = None,
        allow_spill: bool = False,
        progress: Progress | None = None,
    ) -> "Engine":
        """Load the checkpoint folder `path`.

        Args:
            device: "auto", "cpu", "cuda" or "cuda:N".
            dtype: of weights and activations; None is float32 on a CPU, bfloat16 on a GPU.
            activations: arithmetic of quantised weights; none are quantised in this version.
            adapter: folder of an adapter to put onto the model.
            allow_spill: load it although it will not fit into free memory.
            progress: told bytes read and bytes in all.

        Raises:
            CheckpointError: the files cannot be used.
            ValueError: an argument cannot, or memory is too short (NotEnoughRoomError).
        """
        if activations not in ("auto", "bf16", "nvfp4"):
            raise ValueError(f"activations must be auto, bf16 or nvfp4, got {activations!r}")
        target = pick_device(device)
        folder = Path(path)
        if not allow_spill:
            require_room_for(folder, str(target), _resolve_dtype(dtype, target).itemsize)
        model = load_model(
            folder, device=target, dtype=_resolve_dtype(dtype, target), progress=progress
        )
        if target.type == "cpu":
            set_threads(sum(p.numel() for p in model.parameters()))
        if adapter is not None:
            load_adapter(model, adapter)
        mask_id, stop_ids = read_special_ids(folder, model.config.vocab_size)
        tokenizer = None
        if (folder / "tokenizer.json").exists():
            tokenizer = Tokenizer.from_pretrained(folder)
            mask_id, stop_ids = _agree(tokenizer, mask_id, stop_ids, model.config, folder)
        return cls(model, tokenizer, mask_id=mask_id, stop_ids=stop_ids)

    @property
    def config(self) -> ModelConfig:
        """The model's numbers."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.model.embedding_table.device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' and activations' type."""
        return self.model.embedding_table.dtype

    @property
    def parameters(self) -> int:
        """How many weights there are."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def memory(self) -> int:
        """Bytes the weights take."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters())

    @property
    def context_length(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self.config.max_position_embeddings

    def logits(self, ids: Sequence[int] | Tensor, *, block_length: int = 32) -> Tensor:
        """Float32 logits [T, V] of a whole sequence of ids [T] under the block-causal mask.

        Raises ValueError for ids that the vocabulary or the context does not hold.
        """
        sequence = self._check_ids(ids)
        if block_length < 1:
            raise ValueError(f"block_length must be at least 1, got {block_length}")
        if len(sequence) > self.context_length:
            raise ValueError(
                f"{len(sequence):,} tokens do not fit the context of {self.context_length:,}."
            )
        attention = ops(self.model.embedding_table).attention
        with torch.no_grad():
            result: Tensor = self.model(
                self.model.embed(torch.tensor(sequence, device=self.device)),
                torch.arange(len(sequence), device=self.device),
                lambda _, q, k, v: attention(q, k, v, start=0, block_length=block_length),
            )
        return result

    def generate(
        self,
        ids: Sequence[int] | Tensor,
        config: DecodeConfig,
        *,
        record: bool = False,
        stop: Callable[[], bool] | None = None,
        on_prefill: OnPrefill | None = None,
    ) -> Iterator[Event]:
        """Answer the prompt `ids`: prefill, then per block: open, denoise, commit, yield.

        Args:
            record: keep a trajectory for `FinishEvent.trajectory`.
            stop: asked before every forward; once true the answer ends, and what is decided up
                to the first undecided position stays.
            on_prefill: told of the prompt's progress.

        Raises (at the call, before anything is computed):
            PromptTooLongError: no block of answer would fit behind the prompt.
            ValueError: an empty prompt, ids outside the vocabulary, no known mask id, or stop
                strings without a tokenizer.
        """
        requested = time.perf_counter()
        prompt = self._check_ids(ids)
        length = config.block_length
        if len(prompt) // length * length + length > self.context_length:
            raise PromptTooLongError(len(prompt), self.context_length, length)
        if config.stop_strings and self.tokenizer is None:
            raise ValueError("stop_strings need a tokenizer, and this checkpoint has none.")
        answer = Answer(
            Plan.make(prompt, config, self.context_length),
            self._denoiser(config, len(prompt) // length * length, record, stop),
            self.tokenizer,
            on_prefill,
            requested,
        )
        return answer.events()

    def reset_cache(self) -> None:
        """Forget the committed keys and values, as a change of weights demands."""
        self._cache.clear()

    def _denoiser(
        self,
        config: DecodeConfig,
        first_start: int,
        record: bool,
        stop: Callable[[], bool] | None,
    ) -> Denoiser:
        mask_id = self.mask_id if config.mask_id is None else config.mask_id
        stop_ids = self.stop_ids if config.stop_ids is None else config.stop_ids
        if mask_id is None:
            raise ValueError(
                "This checkpoint does not say which token is the mask; set mask_id in DecodeConfig."
            )
        for id in (mask_id, *stop_ids):
            self._check_id(id)
        if mask_id in stop_ids:
            raise ValueError(f"Token {mask_id} is the mask; it cannot end an answer as well.")
        seed = config.seed if config.seed is not None else secrets.randbits(32)
        return Denoiser(
            model=self.model,
            cache=self._cache,
            config=config,
            mask_id=mask_id,
            stop_ids=frozenset(stop_ids),
            seed=seed,
            first_start=first_start,
            # A stop string is seen only in a finished block's text, when the next is not begun.
            overlap=config.overlap and not config.stop_strings,
            record=record,
            stop=stop or (lambda: False),
        )

    def _check_ids(self, ids: Sequence[int] | Tensor) -> list[int]:
        try:
            sequence = [index(i) for i in (ids.tolist() if isinstance(ids, Tensor) else ids)]
        except TypeError as error:
            raise ValueError("Token ids must be a sequence of whole numbers.") from error
        if not sequence:
            raise ValueError("The prompt is empty; give at least one token.")
        for id in sequence:
            self._check_id(id)
        return sequence

    def _check_id(self, id: int) -> None:
        if not 0 <= id < self.config.vocab_size:
            raise ValueError(
                f"Token id {id} is outside the vocabulary of {self.config.vocab_size:,}."
            )


def _resolve_dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    named = _DTYPES.get(str(dtype).removeprefix("torch."))
    if named is None:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}")
    return named


def _agree(
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
