"""The engine's face: load a checkpoint once, then turn ids into events, one answer at a time."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from engine.checkpoint.adapter import apply_adapter
from engine.checkpoint.load import Activations, Progress, load_model
from engine.checkpoint.special_ids import agree, read_special_ids
from engine.checkpoint.token_ids import check_ids
from engine.checkpoint.tokenizer import Tokenizer
from engine.config import DecodeConfig, ModelConfig, PromptTooLongError
from engine.decode.answer import Answer, OnPrefill
from engine.decode.batch import Lane, answer_all
from engine.decode.denoise import Denoiser
from engine.decode.kv_cache import KVCache
from engine.decode.loop_answer import LoopAnswer
from engine.decode.loop_times import LoopTimes
from engine.decode.loops_on_card import make_loops
from engine.decode.plan import Plan
from engine.dtypes import resolve_dtype
from engine.events import Event, FinishEvent
from engine.hardware import pick_device, set_threads
from engine.kernels import ops, runs_triton
from engine.machine.room import require_room_for
from engine.model.quantised import count_bytes, count_weights
from engine.model.tiles import tile_weights
from engine.model.transformer import LLaDA2Model


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
        self._loops, self._how = make_loops(model, graph=False)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        dtype: torch.dtype | str | None = None,
        activations: Activations = "auto",
        adapter: str | Path | None = None,
        residual_map: str | Path | None = None,
        allow_spill: bool = False,
        progress: Progress | None = None,
    ) -> "Engine":
        """Load the checkpoint folder `path`.

        Args:
            device: "auto", "cpu", "cuda" or "cuda:N".
            dtype: of weights and activations; None is float32 on a CPU, bfloat16 on a GPU.
            activations: of NVFP4 weights: "bf16" leaves activations as they are (W4A16), "nvfp4"
                rounds them too (W4A4), "auto" does as the checkpoint declares, but on a CPU leaves
                them. Without effect on plain weights.
            adapter: folder of an adapter to put onto the model; LoRA is folded into its weights.
            residual_map: a file that says which tensors are the residual adapter
                (`engine/checkpoint/residual_map.py`); None looks for one in the folder.
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
        kind = resolve_dtype(dtype, target)
        model = load_model(
            folder,
            device=target,
            dtype=kind,
            activations=activations,
            residual_map=residual_map,
            room=None
            if allow_spill
            else partial(require_room_for, folder, str(target), kind.itemsize),
            progress=progress,
        )
        if adapter is not None:
            apply_adapter(model, adapter, folder)
        if target.type == "cpu":
            set_threads(count_weights(model))
        elif runs_triton(model.embedding_table):
            tile_weights(model, torch.cuda.get_device_capability(target))
        tokenizer = None
        if (folder / "tokenizer.json").exists():
            tokenizer = Tokenizer.from_pretrained(folder)
        mask_id, stop_ids = agree(
            tokenizer, *read_special_ids(folder, model.config.vocab_size), model.config, folder
        )
        engine = cls(model, tokenizer, mask_id=mask_id, stop_ids=stop_ids)
        engine.use_graph()
        return engine

    def use_graph(self, wanted: bool = True, *, ahead: bool = False) -> None:
        """On a card, make answers by a CUDA graph where one can be made (`how` tells), or not;
        `ahead`: with kernels that are launched ahead of time (`engine/decode/graph_edges.py`)."""
        self._loops, self._how = make_loops(self.model, graph=wanted, ahead=ahead)

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
    def how(self) -> str:
        """On a card: which form the denoising loop takes, and why no better one; else ""."""
        return self._how if self._loops is None else self._loops.how

    @property
    def parameters(self) -> int:
        """How many weights there are."""
        return count_weights(self.model)

    @property
    def memory(self) -> int:
        """Bytes the weights take."""
        return count_bytes(self.model)

    @property
    def context_length(self) -> int:
        """Tokens that prompt and answer may have together."""
        return self.config.max_position_embeddings

    def logits(self, ids: Sequence[int] | Tensor, *, block_length: int = 32) -> Tensor:
        """Float32 logits [T, V] of a whole sequence of ids [T] under the block-causal mask.

        Raises ValueError for ids that the vocabulary or the context does not hold.
        """
        sequence = check_ids(ids, self.config.vocab_size)
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
        stepwise: bool = False,
        stop: Callable[[], bool] | None = None,
        on_prefill: OnPrefill | None = None,
    ) -> Iterator[Event]:
        """Answer the prompt `ids`: prefill, then per block: open, denoise, commit, yield.

        Args:
            record: keep a trajectory for `FinishEvent.trajectory`.
            stepwise: begin no forward before the last step's event has been taken.
            stop: asked before every forward, or all the time while a graph runs; once true the
                answer ends, and what is decided up to the first undecided position stays.
            on_prefill: told of the prompt's progress.

        Raises (at the call, before anything is computed):
            PromptTooLongError: no block of answer would fit behind the prompt.
            ValueError: an empty prompt, ids outside the vocabulary, no known mask id, or stop
                strings without a tokenizer.
        """
        requested = time.perf_counter()
        plan, denoiser = self._prepare(ids, config, record, stop)
        if self._loops is not None:
            self._loops.halt()
            if not stepwise and self._loops.takes(plan, denoiser):
                told = (self.tokenizer, on_prefill, requested)
                return LoopAnswer(plan, denoiser, *told, self._loops.begin).events()
        if self.device.type == "cpu":  # elsewhere a call returns before its work is done
            denoiser = replace(denoiser, times=LoopTimes())
        return Answer(plan, denoiser, self.tokenizer, on_prefill, requested).events()

    def generate_many(
        self,
        prompts: Sequence[Sequence[int] | Tensor],
        config: DecodeConfig,
        *,
        record: bool = False,
        seeds: Sequence[int] | None = None,
        rows: int = 32,
        stop: Callable[[], bool] | None = None,
        progress: Callable[[int, FinishEvent], None] | None = None,
    ) -> list[FinishEvent]:
        """Answer all `prompts`, `rows` of them at a time; their ends in the order given.

        The answers are those of `generate` (in float32), and so are their counts, those of
        overlap included; their times are the batch's. The chat's cache is neither used nor lost.

        Args:
            seeds: one for each prompt, in place of `config.seed`.
            progress: told (index, end) of every answer as it ends.

        Raises what `generate` does, before anything is computed.
        """
        requested = time.perf_counter()
        configs = [config] * len(prompts)
        if seeds is not None:
            configs = [replace(config, seed=s) for s in seeds]
        lanes = [
            Lane(*self._prepare(ids, own, record, stop), self.tokenizer, None, requested)
            for ids, own in zip(prompts, configs, strict=True)
        ]
        return answer_all(lanes, self.model, rows, progress=progress)

    def reset_cache(self) -> None:
        """Forget the committed keys and values, as a change of weights demands."""
        self._cache.clear()

    def _prepare(
        self,
        ids: Sequence[int] | Tensor,
        config: DecodeConfig,
        record: bool,
        stop: Callable[[], bool] | None,
    ) -> tuple[Plan, Denoiser]:
        """Check a request; where its answer may go, and what takes its steps."""
        prompt = check_ids(ids, self.config.vocab_size)
        length = config.block_length
        if len(prompt) // length * length + length > self.context_length:
            raise PromptTooLongError(len(prompt), self.context_length, length)
        if config.stop_strings and self.tokenizer is None:
            raise ValueError("stop_strings need a tokenizer, and this checkpoint has none.")
        plan = Plan.make(prompt, config, self.context_length)
        return plan, self._denoiser(config, plan.first_start, record, stop)

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
        check_ids((mask_id, *stop_ids), self.config.vocab_size)
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
