"""`orl-chat doctor`: the report on stdout, as text or as one JSON object."""

import json
import shutil

from app.doctor import WIDTH, examine


def doctor(*, as_json: bool, for_bug_report: bool, model: str | None = None) -> int:
    """Look and print; the exit code is 0 when chat can run, be it the demo on the processor.
    `model` is what memory and disk are judged by (None: the settings' model)."""
    found = examine(model=model)
    if for_bug_report:
        from app.report import for_bug_report as without_personal_data

        found = without_personal_data(found)
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
    print(json.dumps(found.to_json()) if as_json else found.to_text(width))
    return 0 if found.can_chat else 1
