"""Whether an answer is right: every prompt's own verifier behind one call.

Text is compared here. What may hang or crash runs in processes of their own with a time limit
(`judging.py`); code runs in the sandbox, and only where the caller says that the user allowed it.
A verifier never raises: what goes wrong is a verdict with `error`, which is not the answer's fault.
"""

import importlib.util
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from finetune.isolation import Isolation
from finetune.judges import JUDGES
from finetune.judging import JudgingProcesses
from finetune.prompts import Problem, Prompt
from finetune.python_tests import passes_tests
from finetune.sandbox import Limits, sandbox_kind
from finetune.specs import Spec, parse_spec
from finetune.taking import take

_HERE = ("exact", "contains", "number", "choice")
_PACKAGES = {"math": "math_verify", "json": "jsonschema"}
_INSTALL = "pip install math-verify jsonschema"


class VerifierError(ValueError):
    """These prompts cannot be verified; the message is a sentence for the user."""


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of an answer.

    Attributes:
        reason: why it did not pass; a clause.
        error: the verifier failed, so nothing is known of the answer.
    """

    passed: bool
    reason: str
    seconds: float
    error: bool = False


class Verifier:
    """Judges answers; for several threads at once. Close it, or use it in a `with` statement."""

    def __init__(
        self,
        *,
        folder: Path,
        run_code: bool,
        limits: Limits,
        isolation: Isolation | None,
    ) -> None:
        self._folder, self._run_code = folder, run_code
        self._limits, self._isolation = limits, isolation
        self._processes = JudgingProcesses()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, prompt: Prompt, answer: str) -> Verdict:
        return self.check(prompt, answer)

    def close(self) -> None:
        """End the processes it started."""
        self._processes.close()

    def check(self, prompt: Prompt, answer: str) -> Verdict:
        """Whether `answer` is right for `prompt`."""
        return self._timed(prompt, answer, whole=False)

    def check_reference(self, prompt: Prompt) -> Verdict | None:
        """The verdict on the prompt's own answer; None where it has none, or it may not be run."""
        spec = _spec(prompt)
        if spec.runs_code and not self._run_code:
            return None
        if prompt.answer is not None:
            return self._timed(prompt, prompt.answer, whole=True)
        if spec.kind != "function":
            return None
        verdict = self._processes.judge({**self._request(spec, prompt, ""), "kind": "import"}, 1)
        return Verdict(verdict[0], verdict[1], 0.0, verdict[2])

    def _timed(self, prompt: Prompt, answer: str, *, whole: bool) -> Verdict:
        """`whole`: an answer without the part that counts is that part itself."""
        start = time.perf_counter()
        try:
            spec = parse_spec(prompt.verify, prompt.answer)
            text = take(spec.take, answer)
            if text is None and not whole:
                judgement = False, f"there is no part {spec.take!r} in the answer", False
            else:
                judgement = self._judge(spec, prompt, answer if text is None else text)
        except Exception as error:  # a verdict is due whatever happens
            judgement = False, f"the verifier failed ({type(error).__name__}: {error})", True
        passed, reason, failed = judgement
        return Verdict(passed, "" if passed else reason, time.perf_counter() - start, failed)

    def _judge(self, spec: Spec, prompt: Prompt, text: str) -> tuple[bool, str, bool]:
        if spec.runs_code and not self._run_code:
            return False, "running code was not allowed", True
        if spec.kind == "python":
            return passes_tests(
                text,
                spec.options["tests"],
                spec.seconds,
                limits=self._limits,
                isolation=self._isolation,
            )
        if spec.kind in _HERE:
            return *JUDGES[spec.kind](spec.options, text, self._reference(spec, prompt)), False
        return self._processes.judge(self._request(spec, prompt, text), spec.seconds)

    def _reference(self, spec: Spec, prompt: Prompt) -> str | None:
        """The part of the reference that counts, all of it where that part is missing."""
        if prompt.answer is None:
            return None
        part = take(spec.take, prompt.answer)
        return prompt.answer if part is None else part

    def _request(self, spec: Spec, prompt: Prompt, text: str) -> Mapping[str, Any]:
        row = {"messages": prompt.messages, "answer": prompt.answer, **prompt.extra}
        return {
            "kind": spec.kind,
            "function": spec.function,
            "foreign": spec.runs_code,
            "folder": str(self._folder),
            "options": spec.options,
            "prompt": prompt.question,
            "text": text,
            "answer": self._reference(spec, prompt),
            "row": row,
        }


def make_verifier(
    prompts: Iterable[Prompt],
    *,
    folder: str | Path = ".",
    run_code: bool = False,
    limits: Limits | None = None,
    isolation: Isolation | None = None,
) -> Verifier:
    """A verifier for these prompts.

    Args:
        folder: where their own functions are looked for: the folder of the prompts' file.
        run_code: the user allowed that code is run.
        limits: of code, whose time each prompt sets itself.
        isolation: of code; the best there is when None.

    Raises:
        VerifierError: a package is not installed, or code cannot be run or may not be.
    """
    prompts = list(prompts)
    _check_packages(prompts)
    if code := needs_code(prompts):
        if not run_code:
            raise VerifierError(f"{describe_code(code)}, which was not allowed.")
        if runs_programs(code) and (isolation or sandbox_kind()).name == "none":
            raise VerifierError((isolation or sandbox_kind()).words)
    return Verifier(
        folder=Path(folder).absolute(),
        run_code=run_code,
        limits=limits or Limits(),
        isolation=isolation,
    )


def needs_code(prompts: Iterable[Prompt]) -> list[Prompt]:
    """The prompts whose verifiers run code that came with them or from the model."""
    return [prompt for prompt in prompts if _spec(prompt).runs_code]


def runs_functions(prompts: Iterable[Prompt]) -> list[str]:
    """The functions that these verifiers call, by name; they run with the user's rights."""
    specs = [_spec(prompt) for prompt in prompts]
    return sorted({spec.function for spec in specs if spec.runs_code and spec.function})


def runs_programs(prompts: Iterable[Prompt]) -> bool:
    """Whether these verifiers run what the model writes, in the sandbox."""
    return any(_spec(prompt).kind == "python" for prompt in prompts)


def describe_code(prompts: Sequence[Prompt]) -> str:
    """What their verifiers run, as the beginning of a sentence."""
    functions = runs_functions(prompts)
    parts = ["programs that the model writes"] if runs_programs(prompts) else []
    if functions:
        parts.append(f"the function{'s' * (len(functions) > 1)} {', '.join(functions[:5])}")
    return f"These prompts run {' and '.join(parts)}"


def check_references(verifier: Verifier, prompts: Iterable[Prompt]) -> list[Problem]:
    """The prompts whose own answer their verifier rejects, or fails on."""
    problems = []
    for prompt in prompts:
        verdict = verifier.check_reference(prompt)
        if verdict is None or verdict.passed:
            continue
        text = (
            "makes its verifier fail" if verdict.error else "has an answer that it rejects itself"
        )
        problems.append(Problem(prompt.line, text, f" ({verdict.reason})"))
    return problems


def _spec(prompt: Prompt) -> Spec:
    return parse_spec(prompt.verify, prompt.answer)


def _check_packages(prompts: list[Prompt]) -> None:
    kinds = {_spec(prompt).kind for prompt in prompts}
    for kind, package in _PACKAGES.items():
        if kind in kinds and importlib.util.find_spec(package) is None:
            raise VerifierError(f"The verifier {kind!r} needs a package more: {_INSTALL}")
