"""What each command of the line head is told: one frozen dataclass a command.

The defaults are the paper's (docs/methods.md, SWE-Pruner Pro); where it leaves something open, the
field says so. Files in conf/linehead name them, `config` reads them. Nothing here does anything.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.fields.strict import Strict
from pipeline.spec.judge import JudgeSpec

LossName = Literal["balanced_focal", "bce", "corpus_focal", "dice", "tversky"]


# --- labels --------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class SampleSettings(Strict):
    """Which tool outputs are labelled."""

    min_lines: int = 15
    max_lines: int = 500
    max_samples: int | None = None
    """None: all; else so many, drawn with `seed`."""
    max_per_run: int | None = None
    drop_repeats: bool = True
    """Of outputs with the same text, only the first is used."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class HeuristicSettings(Strict):
    """When a line counts as used later, without asking anyone."""

    min_chars: int = 8
    """Shorter lines (`else:`, `}`) are found everywhere and prove nothing."""
    margin_lines: int = 1
    """Neighbours of a used line that are kept with it."""
    horizon_turns: int | None = None
    """How many turns later still count; None: to the end of the run."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(JudgeSpec):
    """The judge that labels lines, and what it is shown."""

    messages_before: int = 4
    messages_after: int = 2
    message_chars: int = 2000
    """Each of those messages is cut to so many characters, from its middle."""
    min_confidence: float = 0.0
    """Answers below are kept in the journal and left out of the labels."""


@dataclass(frozen=True, kw_only=True)
class LabelJob(Strict):
    """`label`: recorded runs in, a Parquet file of labelled outputs out."""

    trajectories: tuple[str, ...]
    """traj.json files, folders of them, results folders, or corpus files (`*.jsonl`)."""
    out: str
    labeller: Literal["heuristic", "judge", "corpus"] = "heuristic"
    """`corpus`: the labels that a released corpus (JSON Lines) brings with it."""
    samples: SampleSettings = SampleSettings()
    heuristic: HeuristicSettings = HeuristicSettings()
    judge: JudgeSettings = JudgeSettings()


# --- features ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class FeatureJob(Strict):
    """`features`: labelled outputs in, the backbone's hidden states of their tokens out."""

    labels: str
    trajectories: tuple[str, ...]
    """The runs that were labelled: a token's state depends on all that stands before it."""
    backbone: str
    """Folder of the model, or a name that the offline cache resolves."""
    out: str
    revision: str | None = None
    source: Literal["transformers", "vllm"] = "transformers"
    """`vllm`: a server that pools nothing, at `base_url` (pipeline/linehead/served_backbone.py)."""
    base_url: str | None = None
    """Up to and including `/v1`."""
    request_timeout_s: float = 600.0
    device: str = "cpu"
    """Where Transformers computes; a server has its own."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What Transformers computes in; a server is told by its `--dtype`."""
    stored_dtype: Literal["float32", "bfloat16", "float16"] = "float16"
    max_prompt_tokens: int = 8192
    """Longer prompts lose their oldest turns; system and task messages stay."""
    chunk_tokens: int = 1024
    """Tokens a forward pass; bounds memory, and changes nothing else."""
    shard_mb: float = 256.0
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    tools: str | None = None
    """JSON file with the tool list that the template renders; None: the run's own, if known."""
    threads: int | None = None


# --- training ------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class HeadSettings(Strict):
    """The head's shape; its width is the backbone's."""

    dropout: float = 0.4
    length_embedding: bool = True


@dataclass(frozen=True, kw_only=True)
class SplitSettings(Strict):
    """What is held out."""

    test_instances: tuple[str, ...] = ()
    """Never trained on and never used to choose a checkpoint or threshold."""
    validation_share: float = 0.1
    by: Literal["instance", "sample"] = "instance"
    """`sample` is the paper's; `instance` keeps one task's outputs on one side."""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Strict):
    """How the head is trained."""

    loss: LossName = "balanced_focal"
    gamma: float = 2.0
    alpha: float | None = None
    """Weight of keep tokens in the focal losses, 0 to 1; None: both classes weigh the same."""
    epochs: int = 10
    batch_samples: int = 32
    """Four on each of the paper's eight GPUs."""
    first_lr: float = 3e-5
    last_lr: float = 1.5e-5
    warmup_share: float = 0.05
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    seed: int = 0
    thresholds: tuple[float, ...] = tuple(round(0.05 * i, 2) for i in range(1, 20))
    fill_gaps: bool = True


@dataclass(frozen=True, kw_only=True)
class TrainJob(Strict):
    """`train`: features in, a head with its card out."""

    features: str
    out: str
    head: HeadSettings = HeadSettings()
    split: SplitSettings = SplitSettings()
    train: TrainSettings = TrainSettings()
    ablations: bool = False
    """Also train the four other losses, and the chosen loss without the length embedding."""
    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class ImportJob(Strict):
    """`import`: a published head in, a head with a card out."""

    source: str
    """Folder with the two files."""
    backbone: str
    """What the head was trained on, by its name on the hub: Qwen/Qwen3-Coder-Next, for one."""
    out: str
    revision: str | None = None
    """The backbone's commit, where the publisher names one."""
    threshold: float = 0.5


# --- probe and evaluation ------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class ProbeJob(Strict):
    """`probe`: can a linear rule tell kept lines from their mean hidden state?"""

    features: str
    out: str
    split: SplitSettings = SplitSettings()
    l2: float = 1.0
    """Strength of the logistic regression's penalty, on standardised states."""
    shrinkage: float = 0.1
    """Of LDA's covariance towards a multiple of the identity."""


@dataclass(frozen=True, kw_only=True)
class EvalJob(Strict):
    """`eval`: heads against baselines on what they were not trained on."""

    features: str
    heads: tuple[str, ...]
    """Folders that `train` wrote; their sub-folders with ablations are found."""
    out: str
    labels: str | None = None
    """The labels file; only the judge needs the texts in it."""
    judge: JudgeSettings = JudgeSettings()
    judge_samples: int = 50
    device: str = "cpu"
    threads: int | None = None
