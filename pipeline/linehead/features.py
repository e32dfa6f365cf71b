"""`features`: a backbone's hidden states of labelled outputs, cached on disk.

One forward pass a prompt in chunks, on CPU or GPU; what the prompts of a run share is computed
once. In memory are the backbone, one prompt's keys and values, and one shard. Needs PyTorch.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, DynamicCache
from transformers.utils.logging import disable_progress_bar

from pipeline.context.kept_lines import split_lines
from pipeline.linehead.feature_store import FeatureWriter
from pipeline.linehead.label_table import LabelledOutput, read_labels
from pipeline.linehead.prompts import PromptError, PromptMaker, renders_calls
from pipeline.linehead.settings import FeatureJob
from pipeline.linehead.sources import RecordedRun, recorded_runs

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_CROPPABLE = frozenset({"full_attention"})


@dataclass(slots=True)
class Backbone:
    """A model that gives hidden states; keeps the last prompt's cache for the next one."""

    model: Any
    device: str
    chunk_tokens: int
    reuse: bool
    """False for models whose cache cannot be cut back (sliding windows, linear attention)."""
    n_computed: int = 0
    """Tokens that went through a forward pass."""
    _cache: Any = None
    _ids: tuple[int, ...] = ()

    def states(self, ids: Sequence[int], start: int, end: int) -> Tensor:
        """Return the last hidden states (after the final norm) of tokens `start` to `end`."""
        done = min(self._shared(ids), start) if self.reuse else 0
        if done and self._cache is not None:
            surplus = len(self._ids) - done
            if surplus:
                self._cache.crop(-surplus)
        else:
            done, self._cache = 0, DynamicCache(config=self.model.config)
        # A pass that fails half way leaves a cache of which nothing is known.
        self._ids = ()
        parts = []
        for first in range(done, end, self.chunk_tokens):
            last = min(first + self.chunk_tokens, end)
            chunk = torch.tensor([ids[first:last]], device=self.device)
            with torch.inference_mode():
                output = self.model(input_ids=chunk, past_key_values=self._cache, use_cache=True)
            hidden = output.last_hidden_state[0]
            if last > start:
                parts.append(hidden[max(start - first, 0) :].to("cpu", copy=True))
        self.n_computed += end - done
        self._ids = tuple(ids[:end])
        return torch.cat(parts)

    def _shared(self, ids: Sequence[int]) -> int:
        pairs = zip(self._ids, ids, strict=False)
        different = (i for i, (a, b) in enumerate(pairs) if a != b)
        return next(different, min(len(self._ids), len(ids)))


def loaded_backbone(job: FeatureJob) -> tuple[Backbone, Any]:
    """Return the backbone of a job and its tokenizer, from disk or the offline cache."""
    disable_progress_bar()
    where = {"revision": job.revision} if job.revision else {}
    tokenizer = AutoTokenizer.from_pretrained(job.backbone, local_files_only=True, **where)
    model = AutoModel.from_pretrained(
        job.backbone, dtype=DTYPES[job.dtype], local_files_only=True, **where
    )
    model.eval().to(job.device)
    layers = set(getattr(model.config, "layer_types", None) or _CROPPABLE)
    backbone = Backbone(
        model=model,
        device=job.device,
        chunk_tokens=job.chunk_tokens,
        reuse=layers <= _CROPPABLE,
    )
    return backbone, tokenizer


def run_feature_job(
    job: FeatureJob, *, say: Callable[[str], None], now: Callable[[], float]
) -> str:
    """Write the features of a label file and return a summary; goes on where it stopped.

    Args:
        job: What is wanted.
        say: Told of outputs that are left out.
        now: A clock in seconds.

    Raises:
        ValueError: labels and runs do not fit together, or no output could be used.
    """
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    labels = read_labels(Path(job.labels))
    backbone, tokenizer = loaded_backbone(job)
    calls_as_text = not renders_calls(tokenizer)
    writer = FeatureWriter(
        Path(job.out),
        _facts(job, labels.sha256, backbone, calls_as_text=calls_as_text),
        shard_bytes=job.shard_mb * 1e6,
    )
    todo = [o for o in labels.outputs if o.sample_id not in writer.done]
    started, n_tokens, skipped = now(), 0, 0
    for run, outputs in _by_run(todo, job):
        maker = PromptMaker(
            tokenizer,
            run.trajectory,
            tools=_tools(job, run),
            max_tokens=job.max_prompt_tokens,
            template_kwargs=job.chat_template_kwargs,
            calls_as_text=calls_as_text,
        )
        for output in outputs:
            try:
                prompt = maker.prompt(output.message_index)
            except PromptError as error:
                say(f"{output.sample_id} is left out: {error}")
                skipped += 1
                continue
            span = prompt.output
            hidden = backbone.states(prompt.ids, span.start, span.end)
            n_tokens += len(hidden)
            writer.add(
                hidden.to(DTYPES[job.stored_dtype]),
                span.lines,
                sample_id=output.sample_id,
                instance_id=output.instance_id,
                kept=output.kept,
                line_chars=[len(line) for line in split_lines(output.text)],
                prompt_tokens=len(prompt.ids),
            )
    if skipped == len(labels.outputs):
        raise ValueError("no output could be used; raise max_prompt_tokens")
    writer.finish([o.sample_id for o in labels.outputs], {"n_skipped": skipped})
    seconds = max(now() - started, 1e-9)
    return (
        f"{job.out}: {len(labels.outputs) - skipped} outputs, {n_tokens} new states "
        f"({n_tokens / seconds:.0f}/s), {backbone.n_computed} tokens computed "
        f"({backbone.n_computed / seconds:.0f}/s), {skipped} left out"
    )


def _facts(
    job: FeatureJob, labels_sha256: str, backbone: Backbone, *, calls_as_text: bool
) -> Mapping[str, Any]:
    config = backbone.model.config
    shown = asdict(job)
    kept = ("dtype", "stored_dtype", "max_prompt_tokens", "chat_template_kwargs", "tools")
    return {
        "backbone": Path(job.backbone).name,
        "revision": job.revision or getattr(config, "_commit_hash", None),
        "architectures": config.architectures,
        "hidden_size": config.hidden_size,
        "labels_sha256": labels_sha256,
        "calls_as_text": calls_as_text,
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
