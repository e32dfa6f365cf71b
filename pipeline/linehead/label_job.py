"""`label`: recorded runs become a file of labelled outputs, by rule or by judge."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.linehead.config import ConfigError
from pipeline.linehead.heuristic import heuristic_labels
from pipeline.linehead.judge import JudgeReport, judge_labels
from pipeline.linehead.judge_prompt import SYSTEM
from pipeline.linehead.label_table import LabelledOutput, write_labels
from pipeline.linehead.samples import Sample, samples_of
from pipeline.linehead.settings import JudgeSettings, LabelJob
from pipeline.linehead.sources import recorded_runs
from pipeline.records.run_record import text_sha256
from pipeline.serving.client import HttpCompleter
from pipeline.spec.model import ModelSpec, SamplingSpec


def run_label_job(job: LabelJob, environment: Mapping[str, str]) -> tuple[list[str], bool]:
    """Write the labels and return what to print, and whether everything was labelled.

    Raises:
        ConfigError: the judge's endpoint is not given.
        ServerError: the judge's endpoint fails.
        ValueError: a source cannot be read, or has no output that fits.
    """
    runs = list(recorded_runs(map(Path, job.trajectories)))
    samples = samples_of(runs, job.samples)
    if not samples:
        raise ValueError(
            f"none of the {len(runs)} runs has an output of {job.samples.min_lines} to "
            f"{job.samples.max_lines} lines; lower samples.min_lines"
        )
    out = Path(job.out)
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
    report = _judged(samples, job, environment)
    shown = asdict(job.judge)
    # Where the endpoint is and how fast it was asked is nobody's business but the user's.
    for name in ("base_url", "api_key_env", "concurrency", "request_timeout_s", "max_cost"):
        del shown[name]
    provenance |= {
        "judge": shown,
        "prompt_sha256": text_sha256(SYSTEM),
        "n_failed": report.n_failed,
        "n_unsure": report.n_unsure,
        "n_left": report.n_left,
        "cost": report.cost,
    }
    write_labels(out, report.labels, provenance)
    return [_summary(out, report.labels), *_judge_lines(report, job.judge)], report.n_left == 0


def judge_completer(settings: JudgeSettings, environment: Mapping[str, str]) -> HttpCompleter:
    """Return the client of the judge's endpoint.

    Raises:
        ConfigError: endpoint or model is missing, or the key's variable is not set.
    """
    if settings.base_url is None or settings.model is None:
        raise ConfigError("a judge needs judge.base_url=http://HOST:PORT/v1 and judge.model=NAME")
    key = None
    if settings.api_key_env is not None:
        key = environment.get(settings.api_key_env)
        if not key:
            raise ConfigError(f"judge.api_key_env names {settings.api_key_env}, which is not set")
    model = ModelSpec(
        name=settings.model,
        kind="endpoint",
        repo=settings.model,
        sampling=SamplingSpec(temperature=settings.temperature),
        request_timeout_s=settings.request_timeout_s,
    )
    return HttpCompleter(model, settings.base_url, api_key=key)


def _judged(samples: list[Sample], job: LabelJob, environment: Mapping[str, str]) -> JudgeReport:
    completer = judge_completer(job.judge, environment)
    out = Path(job.out)
    try:
        return judge_labels(samples, job.judge, completer, out.with_suffix(".answers.jsonl"))
    finally:
        completer.close()


def _summary(out: Path, labels: list[LabelledOutput]) -> str:
    if not labels:
        return f"{out}: no labels"
    kept = np.concatenate([o.kept for o in labels])
    return f"{out}: {len(labels)} outputs, {len(kept)} lines, {100 * kept.mean():.1f}% of them kept"


def _judge_lines(report: JudgeReport, settings: JudgeSettings) -> list[str]:
    lines = [
        f"judge: {report.n_asked} asked, {report.n_known} known from before, {report.n_failed} "
        f"without a usable answer, {report.n_unsure} unsure; cost so far {report.cost:.4f}"
    ]
    if report.n_left:
        lines.append(
            f"{report.n_left} outputs were not asked about: the next request might pass the cap of "
            f"{settings.max_cost}; raise judge.max_cost and run the same command again"
        )
    return lines
