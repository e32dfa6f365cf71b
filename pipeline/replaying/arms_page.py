"""The page of all arms, `docs/arms.md`: a picture, a table, and each arm's view of one example.

Rendered from the code, so that the page cannot contradict what the arms do; a test checks that it
is current. Windows and thresholds are made small enough for six turns, and the page says where.
"""

import dataclasses
import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pipeline.replaying.gallery import example_view
from pipeline.spec.arm import ArmSpec
from pipeline.views.policy import TokenCounter

_HEAD = """\
# Arms

```text
trajectory                   policy of the arm               view
append-only, never edited    asked before every step call    what the model is sent

system, task                                                 system, task
planctl: 3 steps                                             planctl: 3 steps
cat rules.py                 decide(trajectory,              cat rules.py
  16 lines           --->      edits in force,      --->       [Earlier command output omitted.]
pytest                         ask)                          pytest
  7 lines                        |                             7 lines
planctl: step 1 done             v                           planctl: step 1 done
                             edits: "show this text
                               instead of message 5"
                             ask: a cleanup, a summary,
                               lines to keep; each call
                               is paid for and recorded
```

An arm is one treatment: a policy with its parameters. The policy returns *edits*; the view is the
trajectory with the edits in force laid over it. System and task messages and plan results are never
edited, an edit stays once it is made, and outputs of 10,000 characters and more are shown as head
and tail in every arm alike.

An arm is a file in `conf/arm`. `arms.NAME.policy.PARAMETER=VALUE` changes a parameter,
`arms.NAME.placeholder` the text that stands for what was removed, and `arms.NAME.instructions` adds
a sentence to the system message, such as what "(filtered 80 lines)" means; it is empty by default.
A new arm is a module in `pipeline/arms` and a file in `conf/arm`
([adding-an-arm.md](adding-an-arm.md)).

| arm | what it does | source |
|---|---|---|"""

_EXAMPLE = """
Below is what each arm shows of the same six turns, right before the seventh call. The page is
written from the code (`python -m tests.context.test_arms_page`). The last command takes 400
seconds. Windows and thresholds are small there, so that arms act within six turns; each section
names the values. Where a model has to choose, it prunes outputs 1 and 2, with the note "rules 0 and
5 fail" where the arm offers one, or keeps lines 1 and 2; where a head or a line pruner scores
lines, those about rules 0 and 5 matter.

## The example under `full_history`
"""


def arms_page(arms: Mapping[str, ArmSpec], notes: Mapping[str, str], counter: TokenCounter) -> str:
    """Return `docs/arms.md` for the configured arms, each with the note of its file."""
    full = example_view(arms["full_history"], counter).lines
    table = [
        f"| [`{name}`](#{name}) | {_first_sentence(notes[name])} | {arm.policy.source} |"
        for name, arm in arms.items()
    ]
    sections = _sections(arms, notes, counter, full)
    return "\n".join([_HEAD, *table, _EXAMPLE, *_view_block(full), *sections]) + "\n"


def _first_sentence(note: str) -> str:
    sentence, dot, _ = note.partition(". ")
    return sentence + dot.strip()


def _sections(
    arms: Mapping[str, ArmSpec],
    notes: Mapping[str, str],
    counter: TokenCounter,
    full: tuple[str, ...],
) -> Iterator[str]:
    for name, arm in arms.items():
        small = arm.policy.for_example
        shown = example_view(replace(arm, policy=replace(arm.policy, **small)), counter)
        yield f"\n## `{name}`\n"
        yield f"{notes[name]} Source: {arm.policy.source}.\n"
        yield f"Parameters: {_parameters(arm)}."
        if small:
            yield "Here: " + ", ".join(f"`{k}={v}`" for k, v in small.items()) + "."
        if shown.asked:
            yield f"Calls of its own: {', '.join(shown.asked)}."
        yield ""
        if shown.lines == full:
            yield "The view is that of `full_history`."
        else:
            yield from _difference(full, shown.lines)


def _parameters(arm: ArmSpec) -> str:
    fields = [f.name for f in dataclasses.fields(arm.policy) if f.name != "kind"]
    values = [f"`{name}={json.dumps(getattr(arm.policy, name))}`" for name in fields]
    own = [] if arm.plan else ["`plan=false`"]
    return ", ".join([*own, *values]) or "none"


def _view_block(lines: tuple[str, ...]) -> Iterator[str]:
    yield "```text"
    yield from (f"{number:2} {line}" for number, line in enumerate(lines))
    yield "```"


def _difference(full: tuple[str, ...], own: tuple[str, ...]) -> Iterator[str]:
    """Yield the view as a diff: removed lines, added lines, and the unchanged rest."""
    yield "```diff"
    for line in difflib.ndiff(full, own):
        if not line.startswith("?"):
            yield line.rstrip()
    yield "```"
