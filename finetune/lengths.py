"""How long prompts are once the checkpoint's chat template has written them. Needs no weights."""

from collections.abc import Sequence

from engine.checkpoint.tokenizer import Tokenizer
from finetune.prompts import Problem, Prompt


def token_lengths(
    prompts: Sequence[Prompt], tokenizer: Tokenizer, context: int, block: int = 32
) -> tuple[dict[str, int], list[Problem]]:
    """Tokens of each prompt by id, and the prompts that leave no block of `context` for an answer
    or that the template refuses."""
    lengths: dict[str, int] = {}
    problems = []
    for prompt in prompts:
        try:
            length = len(tokenizer.encode_chat(list(prompt.messages)))
        except ValueError as error:
            problems.append(Problem(prompt.line, "does not fit the chat template", f" ({error})"))
            continue
        lengths[prompt.id] = length
        if length // block * block + block > context:
            text = f"is too long for this model, whose context is {context:,} tokens"
            problems.append(Problem(prompt.line, text, f" (it is {length:,})"))
    return lengths, problems
