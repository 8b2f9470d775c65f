"""The pieces of an answer's loop in plain torch on the CPU: what the kernels do on a card."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import DecodeConfig
from engine.decode.advance import Rules, advance
from engine.decode.denoise import Denoiser
from engine.decode.graph import run_on_host
from engine.decode.loop import answer_program
from engine.decode.loop_answer import AnswerLoop
from engine.decode.plan import Plan
from engine.decode.unmasking import predict, suppress_mask
from engine.kernels import reference
from engine.kernels.loop_state import ROUNDS, LoopState, Mailbox


class HostRunner:
    """Runs a program piece by piece, leaving it where `pause` says."""

    def __init__(self, program: tuple, pause: int = ROUNDS) -> None:
        self.program, self.pause = program, pause
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        run_on_host(self.program)

    def idle(self) -> bool:
        return True

    def wait(self) -> None:
        pass


@dataclass
class TorchWork:
    """Forwards by the model itself; keys and values go into the denoiser's cache."""

    denoiser: Denoiser
    state: LoopState
    mailbox: Mailbox
    logits: Tensor | None = None
    z: Tensor | None = None

    @property
    def config(self) -> DecodeConfig:
        return self.denoiser.config

    def narrow(self) -> None:
        self.forward(1)

    def wide(self) -> None:
        self.forward(2)

    def forward(self, blocks: int) -> None:
        state, model, length = self.state, self.denoiser.model, self.state.length
        start = int(state.flag("start"))
        embeds = []
        for row in range(blocks):
            takes_z = row == 0 and blocks == 1 and int(state.states[row, 2]) > 0
            z = self.z if takes_z else None
            embeds.append(model.embed(state.tokens[row], z, state.undecided[row].bool()))
        keys, values = self.denoiser.cache.buffers
        end = start + blocks * length

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys[layer][:, start:end], values[layer][:, start:end] = k, v
            return reference.attention(
                q, keys[layer][:, :end], values[layer][:, :end], start=start, block_length=length
            )

        with torch.inference_mode():
            logits = model(torch.cat(embeds), torch.arange(start, end), attend)
            self.logits = suppress_mask(logits, self.denoiser.mask_id)
        for row in range(blocks):
            self.predict(row, self.logits[row * length :][:length], row + 2 - blocks)

    def predict(self, row: int, logits: Tensor, place: int) -> None:
        state, length = self.state, self.state.length
        start, _, step, *_ = state.states[row].tolist()
        found = predict(logits, self.config, seed=self.denoiser.seed, start=start, step=step)
        rows = slice(place * length, (place + 1) * length)
        state.chosen[rows], state.confidence[rows] = found.tokens, found.confidence
        state.best[rows], state.best_probability[rows] = found.best, found.best_probability

    def advance(self) -> None:
        residual = self.denoiser.model.residual_adapter is not None
        rules = Rules(self.config, self.denoiser.stop_ids, self.denoiser.mask_id, residual)
        advance(self.state, self.mailbox, rules)

    def mix(self) -> None:
        model = self.denoiser.model
        assert self.logits is not None
        self.z = reference.soft_embedding(
            self.logits[-self.state.length :], model.embedding_table,
            temperature=model.residual.temperature, top_k=model.residual.top_k,
        )  # fmt: skip


def begin_on_host(plan: Plan, denoiser: Denoiser, pause: int = ROUNDS) -> AnswerLoop:
    """A loop at the beginning of an answer, made for it."""
    device = torch.device("cpu")
    state = LoopState.empty(plan.block_length, device)
    mailbox = Mailbox.empty(plan.block_length, plan.last_start + plan.block_length, pinned=False)
    work = TorchWork(denoiser, state, mailbox)
    loop = AnswerLoop(state, mailbox, HostRunner(answer_program(state, work), pause))
    assert loop.takes(plan, denoiser)
    loop.begin(plan, denoiser)
    return loop
