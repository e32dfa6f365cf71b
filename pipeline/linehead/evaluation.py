"""`eval`: heads against each other and against the baselines, on what they were not trained on.

Every method chooses its threshold in validation and is measured on the test instances of the
head's own split; where a head was trained without test instances, validation is all there is, and
the table says so. Needs PyTorch.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pipeline.host.files import replace_bytes
from pipeline.linehead.baselines import PlainOutput, baselines
from pipeline.linehead.checkpoint import WEIGHTS, TrainedHead, load_head
from pipeline.linehead.feature_store import Features, FeatureStore, open_store
from pipeline.linehead.judge_score import Decisions, JudgeScores, judge_scores
from pipeline.linehead.metrics import (
    AnyScored,
    best_threshold,
    line_auc,
    metrics_at,
    metrics_by_bucket,
    plain_buckets,
    plain_metrics,
    threshold_sweep,
)
from pipeline.linehead.scoring import scored
from pipeline.linehead.settings import EvalJob, SplitSettings, TrainSettings
from pipeline.linehead.split import Split, split_of

COLUMNS = ("f1", "precision", "recall", "keep_rate", "auc", "f1_at_half", "threshold", "judge")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One method's figures on the held-out outputs."""

    method: str
    loss: str
    length_embedding: str
    figures: Mapping[str, Any]
    by_length: Mapping[str, Mapping[str, Any]]


def run_eval_job(job: EvalJob, environment: Mapping[str, str]) -> list[str]:
    """Write `evaluation.json` and `evaluation.md`, and return what to print.

    Raises:
        ValueError: no head is found, heads were split differently, or are of other features.
        ServerError: the judge's endpoint fails.
    """
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    store = open_store(Path(job.features))
    heads = found_heads([Path(h) for h in job.heads])
    cards = [head.card for head in heads.values()]
    _check(cards, store, heads)
    split = split_of([e.instance_id for e in store.entries], _split_settings(cards[0]))
    part = "test" if split.test else "validation"
    places = split.test or split.validation
    rows = _baseline_rows(store, split, places)
    chosen: dict[str, Decisions] = {}
    for name, trained in heads.items():
        row, chosen[name] = _head_row(name, trained, store, split, places, job)
        rows.append(row)
    out = Path(job.out)
    out.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {
        "part": part,
        "instances": sorted({store.entries[i].instance_id for i in places}),
        "n_outputs": len(places),
        "n_lines": sum(store.entries[i].n_lines for i in places),
        "features_sha256": store.sha256,
        "backbone": store.facts["backbone"],
    }
    told = []
    if job.judge.base_url is not None:
        graded = judge_scores(chosen, job, environment)
        rows = [_with_grade(row, graded) for row in rows]
        facts |= {"judge": job.judge.model, "n_graded": graded.n_graded,
                  "judge_cost": graded.asked.cost}  # fmt: skip
        told = ["", _told(graded, job), ""]
    table = table_text(rows, facts) + "\n".join(told)
    result = {
        **facts,
        "rows": [
            {"method": r.method, "loss": r.loss, "length_embedding": r.length_embedding,
             **r.figures, "by_length": r.by_length}
            for r in rows
        ],
    }  # fmt: skip
    replace_bytes(out / "evaluation.json", json.dumps(result, indent=1).encode())
    replace_bytes(out / "evaluation.md", table.encode())
    return table.splitlines()


def found_heads(paths: Sequence[Path]) -> dict[str, TrainedHead]:
    """Return the heads in folders and in their sub-folders, by path below the folder.

    Raises:
        ValueError: a folder holds none.
    """
    heads = {}
    for path in paths:
        files = sorted(path.rglob(WEIGHTS), key=lambda f: (len(f.parts), f))
        if not files:
            raise ValueError(f"{path} holds no {WEIGHTS}; make one with `linehead train`")
        for file in files:
            name = str(file.parent.relative_to(path.parent)).replace("/ablations/", ": ")
            # Two folders of one name: the path tells them apart.
            heads[str(file.parent) if name in heads else name] = load_head(file)
    return heads


def table_text(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """Return the rows as a Markdown table with what they are about."""
    columns = [c for c in COLUMNS if any(r.figures.get(c) is not None for r in rows)]
    head = ["method", "loss", "length embedding", *columns]
    lines = [
        f"{facts['n_lines']} lines of {facts['n_outputs']} outputs ({facts['part']}: "
        f"{', '.join(facts['instances'])}); backbone {facts['backbone']}. "
        "Thresholds by F1 in validation."
        + ("" if facts["part"] == "test" else " No test instances were held out: these are the "
           "outputs that chose epoch and threshold, so the figures flatter the heads."),
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
    ]  # fmt: skip
    for row in rows:
        cells = [row.method, row.loss, row.length_embedding]
        cells += [_cell(row.figures.get(column)) for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def figures_of(
    validation: Sequence[AnyScored], held_out: Sequence[AnyScored], *, fill_gaps: bool
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return a method's figures, over all lines and by length, with the threshold it chose."""
    sweep = threshold_sweep(validation, TrainSettings().thresholds, fill_gaps=fill_gaps)
    threshold = best_threshold(sweep)
    area = line_auc(held_out)
    figures = {
        **plain_metrics(metrics_at(held_out, threshold, fill_gaps=fill_gaps)),
        "f1_at_half": plain_metrics(metrics_at(held_out, 0.5, fill_gaps=fill_gaps))["f1"],
        "auc": None if math.isnan(area) else area,
        "threshold": threshold,
    }
    return figures, plain_buckets(metrics_by_bucket(held_out, threshold, fill_gaps=fill_gaps))


def _baseline_rows(store: FeatureStore, split: Split, places: Sequence[int]) -> list[Row]:
    train, validation, held_out = (
        [_plain(f) for f in store.each([store.entries[i] for i in part])]
        for part in (split.train, split.validation, places)
    )
    rows = []
    for name, baseline in baselines(train).items():
        figures, by_length = figures_of(
            [baseline(o) for o in validation], [baseline(o) for o in held_out], fill_gaps=True
        )
        rows.append(
            Row(method=name, loss="-", length_embedding="-", figures=figures, by_length=by_length)
        )
    return rows


def _head_row(
    name: str,
    trained: TrainedHead,
    store: FeatureStore,
    split: Split,
    places: Sequence[int],
    job: EvalJob,
) -> tuple[Row, Decisions]:
    """Return a head's figures, and which lines it keeps of each held-out output."""
    head, card = trained.head.to(job.device), trained.card
    validation = scored(
        head, store.each([store.entries[i] for i in split.validation]), device=job.device
    )
    entries = [store.entries[i] for i in places]
    held_out = scored(head, store.each(entries), device=job.device)
    figures, by_length = figures_of(validation, held_out, fill_gaps=card["fill_gaps"])
    decisions = {
        entry.sample_id: output.decisions(figures["threshold"], fill_gaps=card["fill_gaps"])
        for entry, output in zip(entries, held_out, strict=True)
    }
    row = Row(
        method=name,
        loss=card["train"]["loss"],
        length_embedding="yes" if card["head"]["length_embedding"] else "no",
        figures=figures,
        by_length=by_length,
    )
    return row, decisions


def _with_grade(row: Row, graded: JudgeScores) -> Row:
    return replace(row, figures={**row.figures, "judge": graded.means.get(row.method)})


def _told(graded: JudgeScores, job: EvalJob) -> str:
    """Return what the judge's column is about, and what to do where it is incomplete."""
    asked = graded.asked
    text = (
        f"judge: mean grade (1 to 10) by {job.judge.model} of {graded.n_graded} outputs that every "
        f"head has a grade for; {asked.n_failed} answers unusable, cost so far {asked.cost:.4f}"
    )
    if asked.n_left:
        text += (
            f"; {asked.n_left} not asked for: the next request might pass the cap of "
            f"{job.judge.max_cost}; raise judge.max_cost and run the same command again"
        )
    return text


def _plain(features: Features) -> PlainOutput:
    return PlainOutput(line_chars=features.line_chars, kept=features.kept)


def _split_settings(card: Mapping[str, Any]) -> SplitSettings:
    split = card["split"]
    return SplitSettings(
        test_instances=tuple(split["test_instances"]),
        validation_share=split["validation_share"],
        by=split["by"],
        seed=split["seed"],
    )


def _check(
    cards: Sequence[Mapping[str, Any]], store: FeatureStore, heads: Mapping[str, TrainedHead]
) -> None:
    for name, card in zip(heads, cards, strict=True):
        if card["features_sha256"] != store.sha256:
            raise ValueError(f"head {name} was trained on other features than {store.folder}")
        if _split_settings(card) != _split_settings(cards[0]):
            raise ValueError(
                f"head {name} held out other outputs than {next(iter(heads))}: evaluate them apart"
            )


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}"
