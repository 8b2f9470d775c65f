"""The demo tokenizer: byte-level BPE in which every number up to 999 is one token.

Runs of digits are split from the space before them, so that 47 is the same token wherever it
stands. As in LLaDA2 the special tokens come last.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from finetune.demo.corpus import DemoItem, training

START, END, TURN_END, MASK = "<|startoftext|>", "<|endoftext|>", "<|role_end|>", "<|mask|>"
SPECIAL = (START, END, "[CLS]", "[gMASK]", MASK, TURN_END, "<role>", "</role>")
SAMPLES = 24_000
MERGE_WEIGHT_OF_NUMBERS = 150
_WORDS = r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{- '<role>SYSTEM</role>' + message.content + '<|role_end|>' -}}
{%- elif message.role == 'user' -%}
{{- '<role>HUMAN</role>' + message.content + '<|role_end|>' -}}
{%- elif message.role == 'assistant' -%}
{{- '<role>ASSISTANT</role>' + message.content + '<|role_end|>' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<role>ASSISTANT</role>' -}}
{%- endif -%}
"""


def _texts(items: Iterable[DemoItem]) -> Iterator[str]:
    for item in items:
        for message in item.messages:
            yield message["content"]
        yield item.answer
    for number in range(1000):
        for _ in range(MERGE_WEIGHT_OF_NUMBERS):
            yield str(number)
    for role in ("SYSTEM", "HUMAN", "ASSISTANT"):
        yield from [role] * MERGE_WEIGHT_OF_NUMBERS


def train_tokenizer(vocab_size: int, seed: int) -> Tokenizer:
    """A tokenizer of exactly vocab_size entries, the special ones last."""
    assert vocab_size % 16 == 0
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(islice(training(seed), SAMPLES)), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"{tokenizer.get_vocab_size()} entries learnt, wanted {vocab_size}")
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, directory: Path) -> None:
    """tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    _write_json(
        directory / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "add_eos_token": False,
            "bos_token": START,
            "cls_token": "[CLS]",
            "eos_token": END,
            "pad_token": END,
            "mask_token": MASK,
            "clean_up_tokenization_spaces": False,
            "model_max_length": 2048,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": CHAT_TEMPLATE,
        },
    )
    _write_json(
        directory / "generation_config.json",
        {
            "bos_token_id": tokenizer.token_to_id(START),
            "eos_token_id": [tokenizer.token_to_id(END), tokenizer.token_to_id(TURN_END)],
            "pad_token_id": tokenizer.token_to_id(END),
            "mask_token_id": tokenizer.token_to_id(MASK),
            "block_length": 32,
        },
    )


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def render(item: DemoItem) -> str:
    """The prompt as the chat template writes it, up to where the answer begins."""
    roles = {"system": "SYSTEM", "user": "HUMAN", "assistant": "ASSISTANT"}
    turns = (f"<role>{roles[m['role']]}</role>{m['content']}{TURN_END}" for m in item.messages)
    return "".join(turns) + "<role>ASSISTANT</role>"
