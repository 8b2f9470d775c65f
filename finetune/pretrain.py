"""Supervised block-diffusion pre-training: makes the demo checkpoint from nothing.

    python -m finetune.pretrain --out assets/demo --seed 0 --steps 2600

Each sequence is laid down once clean and twice noisy with complementary masks; some decided
tokens are wrong and must be repaired, most are right and must be kept. Processes of one thread
each average their gradients. Every few minutes the weights are written, so an aborted run leaves a
usable checkpoint; `--init` goes on from one with a fresh schedule.

Left out: validation-based stopping (the decay to 0 is what makes the last points), exact resume.
"""

import argparse
import json
import logging
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch.multiprocessing.spawn import spawn

from engine.checkpoint.load import load_model
from engine.checkpoint.write import save_checkpoint
from engine.config import ModelConfig
from engine.model.transformer import LLaDA2Model, initialise
from finetune.demo.learner import Learner, Recipe
from finetune.demo.vocabulary import END, train_tokenizer, write_tokenizer

log = logging.getLogger("pretrain")

VOCABULARY = 2304
SAVE_SECONDS = 240.0
REPORT_STEPS = 25


def demo_config(vocab_size: int = VOCABULARY) -> ModelConfig:
    """The demo model's shape: 1.9 M parameters."""
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=352,
        moe_intermediate_size=96,
        num_experts=8,
        num_experts_per_tok=2,
        num_shared_experts=1,
        first_k_dense_replace=1,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
        partial_rotary_factor=0.5,
        rope_theta=10000.0,
        rms_norm_eps=1e-6,
        max_position_embeddings=2048,
    )


def starting_model(init: Path | None, recipe: Recipe) -> LLaDA2Model:
    """A checkpoint's weights in float32, or fresh ones."""
    if init is None:
        return initialise(LLaDA2Model(demo_config()), recipe.seed)
    return load_model(init, device=torch.device("cpu"), dtype=torch.float32).requires_grad_(True)


def save(model: LLaDA2Model, tokenizer: Tokenizer, out: Path) -> None:
    end = tokenizer.token_to_id(END)
    save_checkpoint(model, out, extra_config={"pad_token_id": end, "use_cache": False})
    write_tokenizer(tokenizer, out)


def run(rank: int, recipe: Recipe, out: Path, init: Path | None, meeting: str) -> None:
    """What each process does; the first one also reports and saves."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    if recipe.processes > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=recipe.processes
        )
    if init is None:
        tokenizer = train_tokenizer(VOCABULARY, recipe.seed)
    else:
        tokenizer = Tokenizer.from_file(str(init / "tokenizer.json"))
    learner = Learner(starting_model(init, recipe), tokenizer, recipe, rank)
    train(learner, out if rank == 0 else None)
    if recipe.processes > 1:
        dist.destroy_process_group()


def train(learner: Learner, out: Path | None) -> None:
    """All steps; with `out`, reports and checkpoints on the way and at the end."""
    steps = learner.recipe.steps
    start = saved = time.monotonic()
    for number in range(steps):
        loss = learner.step(number)
        if out is None:
            continue
        now = time.monotonic()
        if (number + 1) % REPORT_STEPS == 0:
            pace = (now - start) / (number + 1)
            log.info("step %d/%d loss %.4f, %.2f s a step", number + 1, steps, loss, pace)
        if now - saved > SAVE_SECONDS or number + 1 == steps:
            saved = now
            save(learner.model, learner.tokenizer, out)
            shares = learner.probe()
            log.info("step %d saved; one forward gets %.3f of tokens, %.3f of numbers",
                     number + 1, *shares)  # fmt: skip


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder to write")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--hold", type=float, default=0.4)
    parser.add_argument("--init", type=Path, help="go on from this checkpoint")
    parser.add_argument(
        "--boost", type=json.loads, default={}, help='JSON, e.g. {"divide": 2}: more of a task'
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    recipe = Recipe(
        steps=args.steps, seed=args.seed, batch=args.batch, processes=args.processes, lr=args.lr,
        hold=args.hold, boost=args.boost,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = (recipe, args.out, args.init, os.path.join(folder, "meeting"))
        if recipe.processes == 1:
            run(0, *arguments)
        else:
            spawn(run, arguments, nprocs=recipe.processes)


if __name__ == "__main__":
    main()
