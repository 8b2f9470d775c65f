"""An engine without a model: every forward takes a fixed time, and it measures what it got done.

    python -m tests.benchmarks.paced_engine TOKENS_PER_SECOND TOKENS RESULTS

Each answer has TOKENS tokens, 8 a forward and 32 a block; a wait that ends late is not made up
for, as a late launch of a kernel would not be. After each answer a line `tokens seconds` is added
to the file RESULTS. Its messages go through the engine process's own outbox.
"""

import argparse
import os
import time

from app.outbox import Outbox
from app.protocol import Block, Chat, Done, Hello, LoadModel, Prefill, Ready, Step, decode_request
from tests.app.tui.recording import denoising, stats, tokens_of

BLOCK, PER_FORWARD = 32, 8
STEPS = BLOCK // PER_FORWARD
TEXT = (
    "## Part {n}\n\nWhat follows is *a paragraph* of the usual kind, with `code`, a [link](http://x)"
    " and **words** that take some room.\n\n- one item\n- another item\n\n"
    "```python\ndef f(x):\n    return x + {n}\n```\n\n"
)
READY = Ready(
    model="paced", path="", device="cpu", adapter=None, memory=0, context_length=1 << 20,
    block_length=BLOCK, parameters=0, dtype="float32", load_seconds=0.0,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rate", type=float)
    parser.add_argument("tokens", type=int)
    parser.add_argument("results")
    options = parser.parse_args()
    requests, out = open(os.dup(0), "rb"), open(os.dup(1), "wb")  # noqa: SIM115
    outbox = Outbox(out, on_broken=lambda: os._exit(0))
    outbox.put(Hello("paced", os.getpid()))
    blocks = _blocks(options.tokens)
    for line in requests:
        request = decode_request(line)
        if isinstance(request, LoadModel):
            outbox.put(READY)
        elif isinstance(request, Chat):
            seconds = _answer(request.id, outbox, blocks, PER_FORWARD / options.rate)
            with open(options.results, "a") as file:
                file.write(f"{len(blocks) * BLOCK} {seconds}\n")


def _blocks(tokens: int) -> list[list[str]]:
    """An answer in blocks of 32 tokens each."""
    words: list[str] = []
    while len(words) < tokens:
        words += tokens_of(TEXT.format(n=len(words)))
    return [words[start : start + BLOCK] for start in range(0, tokens // BLOCK * BLOCK, BLOCK)]


def _answer(id: str, outbox: Outbox, blocks: list[list[str]], forward: float) -> float:
    """Tell of an answer; the seconds it took, the writing to the pipe not waited for."""
    pictures = [list(denoising(block)) for block in blocks]
    outbox.put(Prefill(id, tokens=32, total=32, cached=0, seconds=0.01, prompt=40))
    begin = time.perf_counter()
    for index, tokens in enumerate(blocks):
        block_begin = time.perf_counter()
        for number, slots in enumerate(pictures[index], start=1):
            time.sleep(forward)
            step = Step(
                id, index, number, slots, PER_FORWARD, 0, index * BLOCK + number * PER_FORWARD,
                index * STEPS + number, time.perf_counter() - begin,
            )  # fmt: skip
            outbox.sample(lambda step=step: step)
        now = time.perf_counter()
        outbox.put(
            Block(
                id, index, "".join(tokens), BLOCK, STEPS, STEPS, 0, now - block_begin, now - begin,
                [PER_FORWARD] * STEPS, [0] * STEPS,
            )
        )  # fmt: skip
    seconds = time.perf_counter() - begin
    text = "".join("".join(block) for block in blocks)
    outbox.last(Done(id, "end", text, stats(len(blocks) * BLOCK, len(blocks) * STEPS, seconds)))
    return seconds


if __name__ == "__main__":
    main()
