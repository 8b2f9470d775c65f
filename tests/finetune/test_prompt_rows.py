"""Files that are made: the demo's verifiers say what the demo's own checks say; reasoning-gym's."""

import json
from itertools import islice
from pathlib import Path

import pytest

from finetune import gym
from finetune.demo import rows as demo
from finetune.demo.corpus import training
from finetune.prompts import read_prompts
from finetune.verifiers import make_verifier


def test_the_demo_s_verifiers_agree_with_its_checks(tmp_path: Path) -> None:
    items = list(islice(training(seed=3), 300))
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(demo.row(item)) + "\n" for item in items))
    prompts = {prompt.line: prompt for prompt in read_prompts(path).prompts}
    assert len(prompts) > 250
    with make_verifier(prompts.values()) as verifier:
        for line, prompt in prompts.items():
            item, other = items[line - 1], items[line % len(items)]
            for text in (item.answer, item.answer + " **x**", other.answer, "", "**4**"):
                assert verifier(prompt, text).passed == item.check(text)
            assert verifier(prompt, item.answer).passed


def test_the_demo_s_prompts_are_different_and_not_held_out() -> None:
    rows = list(demo.rows(200, seed=1))
    assert len({json.dumps(row.get("messages", row.get("prompt"))) for row in rows}) == 200
    assert not any(item.last.held_out for item in islice(training(seed=1), 400))


def test_reasoning_gym_s_tasks(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    rows = list(gym.rows("leg_counting", 5, seed=0))
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompts = read_prompts(path).prompts
    assert len(prompts) == 5
    with make_verifier(prompts) as verifier:
        for prompt in prompts:
            assert verifier(prompt, f"I count.\nAnswer: {prompt.answer}").passed
            assert not verifier(prompt, "Answer: -1").passed
            assert not verifier(prompt, str(prompt.answer)).passed
    assert "leg_counting" in gym.tasks()
