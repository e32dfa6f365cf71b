"""`label`: recorded runs become a file of labelled outputs, by rule or by judge."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.judging.endpoint import judge_completer
from pipeline.linehead.config import ConfigError
from pipeline.linehead.corpus import SUFFIX, corpus_records, is_corpus
from pipeline.linehead.heuristic import heuristic_labels
from pipeline.linehead.judge import Judged, judge_labels
from pipeline.linehead.judge_prompt import SYSTEM
from pipeline.linehead.label_table import LabelledOutput, labelled, write_labels
from pipeline.linehead.samples import Sample, samples_of
from pipeline.linehead.settings import JudgeSettings, LabelJob
from pipeline.linehead.sources import recorded_runs
from pipeline.plural import plural
from pipeline.records.run_record import text_sha256


def run_label_job(job: LabelJob, environment: Mapping[str, str]) -> tuple[list[str], bool]:
    """Write the labels and return what to print, and whether everything was labelled.

    Raises:
        ConfigError: the judge's endpoint is not given.
        ServerError: the judge's endpoint fails.
        ValueError: a source cannot be read, or has no output that fits.
    """
    out = Path(job.out)
    if out.is_dir():
        raise ConfigError(f"out={out} is a folder; name a file in it: out={out}/labels.parquet")
    if job.labeller == "corpus":
        return _from_corpus(job), True
    runs = list(recorded_runs(map(Path, job.trajectories)))
    samples = samples_of(runs, job.samples)
    if not samples:
        raise ValueError(
            f"none of {plural(len(runs), 'run')} has an output of {job.samples.min_lines} to "
            f"{job.samples.max_lines} lines; lower samples.min_lines"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    provenance: dict[str, Any] = {
        "labeller": job.labeller,
        "samples": asdict(job.samples),
        "sources": {run.source: run.source_sha256 for run in runs},
        "n_runs": len(runs),
    }
    if job.labeller == "heuristic":
        provenance["heuristic"] = asdict(job.heuristic)
        labels = heuristic_labels(samples, job.heuristic)
        write_labels(out, labels, provenance)
        return [_summary(out, labels)], True
    judged = _judge(samples, job, environment)
    shown = asdict(job.judge)
    # Where the endpoint is and how fast it was asked is nobody's business but the user's.
    for name in ("base_url", "api_key_env", "concurrency", "request_timeout_s", "max_cost"):
        del shown[name]
    provenance |= {
        "judge": shown,
        "prompt_sha256": text_sha256(SYSTEM),
        "n_failed": judged.asked.n_failed,
        "n_unsure": judged.n_unsure,
        "n_left": judged.asked.n_left,
        "cost": judged.asked.cost,
    }
    printed = _judge_lines(judged, job.judge)
    if not judged.labels:
        return [f"{out} is not written: the judge gave no label", *printed], False
    write_labels(out, judged.labels, provenance)
    printed = [_summary(out, judged.labels), *printed]
    return printed, judged.asked.n_left == 0


def _from_corpus(job: LabelJob) -> list[str]:
    """Write the labels that a released corpus brings; return what to print.

    Raises:
        ValueError: no corpus file is named, or a line of one is no record.
    """
    files = [Path(path) for path in job.trajectories]
    others = [file for file in files if not is_corpus(file)]
    if others:
        raise ValueError(f"{others[0]} is no corpus: name a file that ends in {SUFFIX}")
    sources: dict[str, str] = {}
    labels = []
    fits = range(job.samples.min_lines, job.samples.max_lines + 1)
    for record in (r for file in files for r in corpus_records(file)):
        sources[record.run.source] = record.run.source_sha256
        if len(record.kept) in fits:
            sample = Sample(run=record.run, message_index=record.message_index)
            labels.append(labelled(sample, record.kept, reasoning=record.reasoning))
    out = Path(job.out)
    write_labels(
        out,
        labels,
        {"labeller": "corpus", "samples": asdict(job.samples), "sources": sources},
    )
    return [_summary(out, labels)] if labels else [f"{out}: no output of that length"]


def _judge(samples: list[Sample], job: LabelJob, environment: Mapping[str, str]) -> Judged:
    completer = judge_completer(job.judge, environment)
    out = Path(job.out)
    try:
        return judge_labels(samples, job.judge, completer, out.with_suffix(".answers.jsonl"))
    finally:
        completer.close()


def _summary(out: Path, labels: list[LabelledOutput]) -> str:
    kept = np.concatenate([o.kept for o in labels])
    return (
        f"{out}: {plural(len(labels), 'output')}, {plural(len(kept), 'line')}, "
        f"{100 * kept.mean():.1f}% of them kept"
    )


def _judge_lines(judged: Judged, settings: JudgeSettings) -> list[str]:
    asked = judged.asked
    lines = [
        f"judge: {asked.n_asked} asked, {asked.n_known} known from before, {asked.n_failed} "
        f"without a usable answer, {judged.n_unsure} unsure; cost so far {asked.cost:.4f}"
    ]
    if asked.n_failed:
        lines.append(
            f"what was wrong with the first unusable answer: {asked.first_failure}; another "
            "judge.model or judge.max_tokens may do better (answers of this one are not asked for "
            "again)"
        )
    if asked.n_left:
        lines.append(
            f"{asked.n_left} outputs were not asked about: the next request might pass the cap of "
            f"{settings.max_cost}; raise judge.max_cost and run the same command again"
        )
    return lines
