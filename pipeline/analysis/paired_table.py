"""The paired table as plain text: what launch prints at the end, and a log can hold."""

import re
from collections.abc import Sequence
from textwrap import wrap

import numpy as np

from pipeline.analysis.bootstrap import seed_means
from pipeline.analysis.figures.style import evidence_word, short_number
from pipeline.analysis.outcomes import ArmOutcomes
from pipeline.analysis.scores import score_sentences
from pipeline.analysis.study import GroupStudy, Study
from pipeline.analysis.wording import (
    UNKNOWN,
    caveats,
    cost_note,
    noise_sentence,
    p_value,
    percent,
    ratio,
    seeds_words,
    solve_difference,
    verdict,
)
from pipeline.plural import plural

WIDTH = 100
"""Columns that a sentence may take; the table is as wide as its cells."""

HEADER = (
    "arm", "solved", "difference, points", "p (Holm)", "input tokens", "ratio [95%]",
    "cost, cached", "cleanup", "peak", "peak ratio",
)  # fmt: skip


def paired_rows(study: GroupStudy) -> list[tuple[str, ...]]:
    """Return the table's cells, the reference first."""
    reference = study.group.arms[study.reference]
    rows: list[tuple[str, ...]] = [
        (
            study.reference,
            solved_cell(reference),
            "reference",
            "",
            tokens_cell(reference),
            "1",
            "1",
            percent(_share(reference)),
            peak_cell(reference),
            "1",
        )
    ]
    for c in study.contrasts:
        arm = study.group.arms[c.arm]
        solve = c.solve
        name = c.arm if c.is_planned else f"{c.arm} *"
        rows.append(
            (
                name,
                solved_cell(arm),
                UNKNOWN if solve is None else solve_difference(solve),
                UNKNOWN if solve is None else p_value(solve.holm_p),
                tokens_cell(arm),
                ratio(c.tokens),
                UNKNOWN if c.caching_cost is None else ratio(c.caching_cost.ratio),
                percent(c.cleanup_share),
                peak_cell(arm),
                ratio(c.peak_ratio),
            )
        )
    return rows


def solved_cell(arm: ArmOutcomes) -> str:
    """Return the solve rate over graded instances (mean of seed means)."""
    means = seed_means(arm.resolved[arm.graded])
    return percent(float(means.mean())) if len(means) else "not graded"


def tokens_cell(arm: ArmOutcomes) -> str:
    """Return mean input tokens a run."""
    means = arm.mean_of("input_tokens")
    means = means[~np.isnan(means)]
    return short_number(float(means.mean())) if len(means) else UNKNOWN


def peak_cell(arm: ArmOutcomes) -> str:
    """Return the median peak context over instances."""
    means = arm.mean_of("peak_context_tokens")
    means = means[~np.isnan(means)]
    return short_number(float(np.median(means))) if len(means) else UNKNOWN


def _share(arm: ArmOutcomes) -> float:
    total = float(np.nansum(arm.metrics["input_tokens"]))
    part = float(np.nansum(arm.metrics["cleanup_input_tokens"]))
    return part / total if total > 0 else float("nan")


def paired_table_text(study: Study) -> str:
    """Return the paired table of every group, with its size, its evidence and its verdicts."""
    blocks = [_group_text(g, study.cache_note) for g in study.groups]
    if study.is_marked:
        lost = [p.sentence for p in study.gate.problems if p.code == "lost_pairs"]
        marked = ["NOT VALID: this sweep failed its gate; see the report.", *lost]
        blocks.insert(0, "\n".join(marked))
    return "\n\n".join(blocks)


def _group_text(study: GroupStudy, cache_note: str) -> str:
    group = study.group
    word = evidence_word(group.evidence)
    title = f"{group.title}: {plural(len(group.instance_ids), 'instance')}"
    title += f", {seeds_words(group)} an arm"
    title += cache_note + (f" [{word.upper()}]" if word else "")
    lines = [title, *aligned([HEADER, *paired_rows(study)])]
    if any(not c.is_planned for c in study.contrasts):
        lines.append("* exploratory: not in the analysis plan")
    if note := cost_note(study.contrasts):
        lines.append(note)
    if not study.contrasts:
        lines.append("only one arm: there is nothing to compare it with")
    said = score_sentences(study.scores)
    said += [verdict(c) for c in study.contrasts] + caveats(study.contrasts)
    for sentence in (*said, noise_sentence(study.reference, study.noise[study.reference])):
        lines += wrapped(sentence)
    return "\n".join(lines)


def wrapped(sentence: str) -> list[str]:
    """Return the sentence in lines of at most `WIDTH` columns, intervals unbroken."""
    held = re.sub(r"\[[^]]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), sentence)
    lines = wrap(
        held, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines of a table; the first row is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
