"""Work beside the keys and the drawing."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from textual.dom import DOMNode


def in_background(
    node: DOMNode,
    work: Callable[..., Coroutine[Any, Any, object]],
    *arguments: Any,
    group: str,
    exclusive: bool = True,
) -> None:
    """Run `work(*arguments)` as a worker of `node`; `exclusive` ends those of its group before.

    The worker calls it: the coroutine of a call made here would stay unawaited in a window that
    goes before its worker begins, which Python says on the terminal.
    """
    run: Any = partial(work, *arguments)
    node.run_worker(run, group=group, exclusive=exclusive)
