"""Where hidden states come from: the interface, and the model loaded here with Transformers.

One forward pass a prompt in chunks, on CPU or GPU; what the prompts of a run share is computed
once. In memory are the model and one prompt's keys and values. Needs PyTorch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, DynamicCache
from transformers.utils.logging import disable_progress_bar

from pipeline.linehead.prompts import Prompt
from pipeline.linehead.settings import FeatureJob

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_CROPPABLE = frozenset({"full_attention"})


class Backbone(Protocol):
    """A model that gives the last hidden states, after the final norm, of its prompts' tokens."""

    tokenizer: Any
    n_computed: int
    """Tokens that went through the model."""

    @property
    def config(self) -> Any:
        """The model's configuration, as Transformers reads it."""
        ...

    def states(self, prompts: Iterable[Prompt]) -> Iterator[tuple[Prompt, Tensor]]:
        """Yield every prompt with the states of its output's tokens, in order, on the CPU."""
        ...

    def close(self) -> None:
        """Let go of what it holds open."""
        ...


@dataclass(slots=True)
class LocalBackbone:
    """A model in this process; keeps the last prompt's cache for the next one."""

    model: Any
    tokenizer: Any
    device: str
    chunk_tokens: int
    reuse: bool
    """False for models whose cache cannot be cut back (sliding windows, linear attention)."""
    n_computed: int = 0
    _cache: Any = None
    _ids: tuple[int, ...] = ()

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    def states(self, prompts: Iterable[Prompt]) -> Iterator[tuple[Prompt, Tensor]]:
        """Yield every prompt with the states of its output's tokens."""
        for prompt in prompts:
            yield prompt, self.states_of(prompt.ids, prompt.output.start, prompt.output.end)

    def states_of(self, ids: Sequence[int], start: int, end: int) -> Tensor:
        """Return the states of tokens `start` to `end` of a prompt."""
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

    def close(self) -> None:
        """Hold nothing open."""

    def _shared(self, ids: Sequence[int]) -> int:
        pairs = zip(self._ids, ids, strict=False)
        different = (i for i, (a, b) in enumerate(pairs) if a != b)
        return next(different, min(len(self._ids), len(ids)))


def loaded_backbone(job: FeatureJob) -> LocalBackbone:
    """Return the backbone of a job, from disk or the offline cache.

    Raises:
        ValueError: there is no such model here.
    """
    require_model(job)
    disable_progress_bar()
    model = AutoModel.from_pretrained(
        job.backbone, dtype=DTYPES[job.dtype], local_files_only=True, **revision_of(job)
    )
    model.eval().to(job.device)
    layers = set(getattr(model.config, "layer_types", None) or _CROPPABLE)
    return LocalBackbone(
        model=model,
        tokenizer=loaded_tokenizer(job),
        device=job.device,
        chunk_tokens=job.chunk_tokens,
        reuse=layers <= _CROPPABLE,
    )


def require_model(job: FeatureJob) -> None:
    """Return if the backbone's configuration can be read.

    Raises:
        ValueError: it cannot, with what to do.
    """
    if (Path(job.backbone) / "config.json").exists():
        return
    try:
        AutoConfig.from_pretrained(job.backbone, local_files_only=True, **revision_of(job))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no model in backbone={job.backbone}: it is no folder with a config.json, and nothing "
            "in the offline cache has that name; stage it where there is a network (python -m "
            "pipeline.stage model --help) and name its folder"
        ) from error


def loaded_tokenizer(job: FeatureJob) -> Any:
    """Return the backbone's tokenizer."""
    return AutoTokenizer.from_pretrained(job.backbone, local_files_only=True, **revision_of(job))


def revision_of(job: FeatureJob) -> dict[str, str]:
    """Return the argument that names the backbone's revision, if the job has one."""
    return {"revision": job.revision} if job.revision else {}
