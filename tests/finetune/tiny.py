"""A tiny engine that can learn, prompts for it, and a verifier that needs no process."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.checkpoint.revision import revision
from engine.decode.denoise import Denoiser
from engine.generate import Engine
from finetune.adapters import Trainable, prepare
from finetune.config import FinetuneConfig
from finetune.prompts import Prompt
from finetune.rollout import Rollout, roll_out
from finetune.runs import RunFolder, RunInfo
from finetune.session import Session
from finetune.trainer import Trainer
from finetune.verifiers import Verdict


def passes(prompt: Prompt, answer: str) -> Verdict:
    return Verdict(True, "", 0.0)


def fails(prompt: Prompt, answer: str) -> Verdict:
    return Verdict(False, "wrong", 0.0)


def question(text: str, id: str) -> Prompt:
    return Prompt(({"role": "user", "content": text},), None, "exact", 1, id)


def questions(count: int) -> list[Prompt]:
    return [question(f"{n} and {n * n % 7}{'?' * (n % 5)}", str(n)) for n in range(count)]


def tiny_config(**changes: object) -> FinetuneConfig:
    """Few, short answers; half the positions uncertain."""
    settings: dict = {
        "updates": 6, "prompts_per_update": 2, "max_new_tokens": 16, "lora_rank": 2,
        "adapter_width": 24, "threshold": 0.03, "editing_threshold": 0.5, "held_out": 2,
        "check_every": 2, "row_tokens": 600, "gate": 0.5,
    }  # fmt: skip
    return FinetuneConfig(**(settings | changes))


def tiny_engine(checkpoint: Path) -> Engine:
    return Engine.load(checkpoint, device="cpu")


def stir(trainable: Trainable, size: float = 0.1) -> None:
    """Move everything trained away from its start, so that nothing is a no-op any more."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in trainable.parameters.values():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def active_engine(checkpoint: Path, **changes: object) -> tuple[Engine, Trainable]:
    """An engine whose LoRA and residual adapter both matter."""
    engine = tiny_engine(checkpoint)
    trainable = prepare(engine.model, tiny_config(**changes))
    stir(trainable)
    return engine, trainable


class Decisions:
    """Raw logits of every accepted step, in the order in which a trajectory records them."""

    def __init__(self, monkeypatch: object) -> None:
        self.logits: list[Tensor] = []
        decide = Denoiser.decide

        def noted(denoiser: Denoiser, canvas: object, logits: Tensor) -> object:
            self.logits.append(logits)
            return decide(denoiser, canvas, logits)  # type: ignore[arg-type]

        monkeypatch.setattr(Denoiser, "decide", noted)  # type: ignore[attr-defined]


def ids_of(engine: Engine, asked: Sequence[Prompt]) -> list[list[int]]:
    assert engine.tokenizer is not None
    return [engine.tokenizer.encode_chat(list(q.messages)) for q in asked]


def roll_out_ended(*arguments: Any, **options: Any) -> list[Rollout]:
    """Random models rarely end; here answers that ran into the budget count as ended."""
    return [
        replace(r, finish=replace(r.finish, reason="end")) for r in roll_out(*arguments, **options)
    ]


def new_run(path: Path, checkpoint: Path, config: FinetuneConfig) -> RunFolder:
    info = RunInfo(
        path.name, "tiny", str(checkpoint), revision(checkpoint), "", config, held_out=("6", "7")
    )
    return RunFolder.create(path, info, b"")


def session(run: RunFolder, checkpoint: Path, verifier: Any = passes, **options: Any) -> Session:
    """A session over six prompts, with two more held out."""
    config, asked = run.info().config, questions(8)
    trainer = Trainer(tiny_engine(checkpoint), asked[:6], verifier, config, roll_out=roll_out_ended)
    return Session(run, trainer, list(asked[6:]), **options)
