"""`features`: a backbone's hidden states of labelled outputs, cached on disk.

The states come from Transformers or from a vLLM server (`backbone`, `served_backbone`); the store
is the same. In memory are one prompt's states and one shard. Needs PyTorch.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from pipeline.linehead.backbone import DTYPES, Backbone, loaded_backbone
from pipeline.linehead.backbone_name import backbone_name
from pipeline.linehead.feature_store import FeatureWriter
from pipeline.linehead.label_table import LabelledOutput, LabelSet, read_labels
from pipeline.linehead.prompts import Prompt, PromptError, PromptMaker, renders_calls
from pipeline.linehead.recorded_run import RecordedRun
from pipeline.linehead.served_backbone import served_backbone
from pipeline.linehead.settings import FeatureJob
from pipeline.linehead.sources import recorded_runs
from pipeline.views.kept_lines import split_lines

TELL_EVERY_S = 10.0


def run_feature_job(
    job: FeatureJob, *, say: Callable[[str], None], now: Callable[[], float]
) -> str:
    """Write the features of a label file and return a summary; goes on where it stopped.

    Args:
        job: What is wanted.
        say: Told how far it is, and of outputs that are left out.
        now: A clock in seconds.

    Raises:
        ValueError: labels and runs do not fit together, or no output could be used.
    """
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    labels = read_labels(Path(job.labels))
    if not labels.outputs:
        raise ValueError(f"{job.labels} holds no labels; run `linehead label` again")
    backbone = served_backbone(job) if job.source == "vllm" else loaded_backbone(job)
    try:
        return _written(job, labels, backbone, say=say, now=now)
    finally:
        backbone.close()


def _written(
    job: FeatureJob,
    labels: LabelSet,
    backbone: Backbone,
    *,
    say: Callable[[str], None],
    now: Callable[[], float],
) -> str:
    calls_as_text = not renders_calls(backbone.tokenizer)
    writer = FeatureWriter(
        Path(job.out),
        _facts(job, labels.sha256, backbone, calls_as_text=calls_as_text),
        shard_bytes=job.shard_mb * 1e6,
    )
    todo = [o for o in labels.outputs if o.sample_id not in writer.done]
    if len(todo) < len(labels.outputs):
        say(f"{len(labels.outputs) - len(todo)} of {len(labels.outputs)} outputs are here already")
    started, n_new, n_states = now(), 0, 0
    told_at = started
    try:
        for n_tokens in _add(job, backbone, writer, todo, calls_as_text=calls_as_text, say=say):
            n_new += 1
            n_states += n_tokens
            if now() - told_at >= TELL_EVERY_S:
                told_at = now()
                say(f"{n_new} of {len(todo)} outputs, {told_at - started:.0f} s")
    finally:
        # Whatever ends it (Ctrl-C, a time limit, a run that is missing): what was computed stays.
        writer.flush()
    skipped = len(todo) - n_new
    if skipped == len(labels.outputs):
        raise ValueError("no output could be used; raise max_prompt_tokens")
    writer.finish([o.sample_id for o in labels.outputs], {"n_skipped": skipped})
    seconds = max(now() - started, 1e-9)
    return (
        f"{job.out}: {len(labels.outputs) - skipped} outputs, {n_states} new states "
        f"({n_states / seconds:.0f}/s), {backbone.n_computed} tokens computed "
        f"({backbone.n_computed / seconds:.0f}/s), {skipped} left out"
    )


def _add(
    job: FeatureJob,
    backbone: Backbone,
    writer: FeatureWriter,
    todo: Sequence[LabelledOutput],
    *,
    calls_as_text: bool,
    say: Callable[[str], None],
) -> Iterator[int]:
    """Add the features of outputs and yield each one's number of states."""
    for run, outputs in _by_run(todo, job):
        maker = PromptMaker(
            backbone.tokenizer,
            run.trajectory,
            tools=_tools(job, run),
            max_tokens=job.max_prompt_tokens,
            template_kwargs=job.chat_template_kwargs,
            calls_as_text=calls_as_text,
        )
        by_index = {o.message_index: o for o in outputs}
        for prompt, hidden in backbone.states(_prompts(maker, outputs, say)):
            output = by_index[prompt.message_index]
            writer.add(
                hidden.to(DTYPES[job.stored_dtype]),
                prompt.output.lines,
                sample_id=output.sample_id,
                instance_id=output.instance_id,
                kept=output.kept,
                line_chars=[len(line) for line in split_lines(output.text)],
                prompt_tokens=len(prompt.ids),
            )
            yield len(hidden)


def _prompts(
    maker: PromptMaker, outputs: Sequence[LabelledOutput], say: Callable[[str], None]
) -> Iterator[Prompt]:
    """Yield the outputs' prompts, those that can be made."""
    for output in outputs:
        try:
            yield maker.prompt(output.message_index)
        except PromptError as error:
            say(f"{output.sample_id} is left out: {error}")


def _facts(
    job: FeatureJob, labels_sha256: str, backbone: Backbone, *, calls_as_text: bool
) -> Mapping[str, Any]:
    config = backbone.config
    name = backbone_name(job.backbone, job.revision or getattr(config, "_commit_hash", None))
    shown = asdict(job)
    kept = ("source", "stored_dtype", "max_prompt_tokens", "chat_template_kwargs", "tools")
    return {
        "backbone": name.repo,
        "revision": name.revision,
        "architectures": config.architectures,
        "hidden_size": config.get_text_config().hidden_size,
        "labels_sha256": labels_sha256,
        "calls_as_text": calls_as_text,
        # A server does not say what it computes in.
        "dtype": job.dtype if job.source == "transformers" else None,
        **{name: shown[name] for name in kept},
    }


def _by_run(
    outputs: Sequence[LabelledOutput], job: FeatureJob
) -> Iterator[tuple[RecordedRun, list[LabelledOutput]]]:
    """Yield runs with their outputs in order, one run in memory at a time."""
    ordered = sorted(outputs, key=lambda o: (o.run_id, o.message_index))
    wanted = {run_id: list(group) for run_id, group in groupby(ordered, key=lambda o: o.run_id)}
    for run in recorded_runs(map(Path, job.trajectories)):
        group = wanted.pop(run.run_id, None)
        if group is None:
            continue
        for output in group:
            if run.trajectory.messages[output.message_index].content != output.text:
                raise ValueError(
                    f"{output.sample_id} has another text in the runs than in {job.labels}; "
                    "label these runs again"
                )
        yield run, group
    if wanted:
        raise ValueError(
            f"trajectories lack {len(wanted)} of the labelled runs, such as {next(iter(wanted))}"
        )


def _tools(job: FeatureJob, run: RecordedRun) -> list[dict[str, Any]] | None:
    text = run.tools if job.tools is None else Path(job.tools).read_text()
    return None if text is None else json.loads(text)
