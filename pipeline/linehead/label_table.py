"""The labels on disk: one Parquet file, a row an output, with how they came to be.

The file is self-contained but for the messages around an output, which `features` reads again
from the runs. Its metadata say who labelled, from which sources, under which filters.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.host.files import replace_bytes
from pipeline.linehead.judge_prompt import messages_after, told
from pipeline.linehead.samples import Sample
from pipeline.linehead.settings import JudgeSettings
from pipeline.records.run_record import text_sha256
from pipeline.views.kept_lines import BoolArray

LABELS_VERSION = 2
"""2: `followed`, what came after the output."""

_PROVENANCE = b"planprune.line_labels"

SCHEMA = pa.schema(
    [
        ("sample_id", pa.string()),
        ("run_id", pa.string()),
        ("instance_id", pa.string()),
        ("message_index", pa.int64()),
        ("step_index", pa.int64()),
        ("command", pa.string()),
        ("text", pa.string()),
        ("text_sha256", pa.string()),
        ("n_lines", pa.int64()),
        ("kept", pa.list_(pa.bool_())),
        ("confidence", pa.float64()),
        ("reasoning", pa.string()),
        ("followed", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledOutput:
    """One output with a decision for each of its lines."""

    sample_id: str
    run_id: str
    instance_id: str
    message_index: int
    step_index: int
    command: str | None
    text: str
    kept: BoolArray
    confidence: float | None = None
    reasoning: str | None = None
    followed: str | None = None
    """The messages that came next, as a judge reads them; None in files of version 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSet:
    """The labels of a file."""

    outputs: Sequence[LabelledOutput]
    provenance: Mapping[str, Any]
    sha256: str
    """Of the file: what features and heads name as their data."""


def labelled(
    sample: Sample,
    kept: BoolArray,
    *,
    confidence: float | None = None,
    reasoning: str | None = None,
) -> LabelledOutput:
    """Return `sample` with its label."""
    messages = sample.run.trajectory.messages
    message = messages[sample.message_index]
    return LabelledOutput(
        sample_id=sample.sample_id,
        run_id=sample.run.run_id,
        instance_id=sample.run.instance_id,
        message_index=message.index,
        step_index=message.step_index,
        command=message.command,
        text=message.content,
        kept=kept,
        confidence=confidence,
        reasoning=reasoning,
        followed=told(messages_after(messages, message.index, JudgeSettings()), JudgeSettings()),
    )


def write_labels(
    path: Path, outputs: Sequence[LabelledOutput], provenance: Mapping[str, Any]
) -> None:
    """Write the labels to `path`; the same labels give the same bytes."""
    rows = [
        {
            **{f: getattr(o, f) for f in SCHEMA.names if hasattr(o, f)},
            "text_sha256": text_sha256(o.text),
            "n_lines": len(o.kept),
            "kept": o.kept.tolist(),
        }
        for o in outputs
    ]
    facts = {"version": LABELS_VERSION, **provenance}
    table = pa.Table.from_pylist(rows, schema=SCHEMA).replace_schema_metadata(
        {_PROVENANCE: json.dumps(facts, sort_keys=True).encode()}
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, buffer.getvalue())


def read_labels(path: Path) -> LabelSet:
    """Return the labels of a file.

    Raises:
        ValueError: it is no label file, or of a newer version.
    """
    if not path.is_file():
        raise ValueError(f"no label file {path}; make one with `linehead label` (out={path})")
    data = path.read_bytes()
    try:
        table = pq.read_table(io.BytesIO(data))
    except pa.ArrowException as error:
        raise ValueError(
            f"{path} is no file of line labels ({error}); make one with `linehead label`"
        ) from error
    found = (table.schema.metadata or {}).get(_PROVENANCE)
    if found is None:
        raise ValueError(f"{path} is no file of line labels; make one with `linehead label`")
    provenance = json.loads(found)
    if provenance["version"] > LABELS_VERSION:
        raise ValueError(
            f"{path} has version {provenance['version']}, this planprune reads {LABELS_VERSION}"
        )
    columns = [n for n in SCHEMA.names if n not in ("text_sha256", "n_lines", "kept")]
    outputs = [
        LabelledOutput(
            **{name: row.get(name) for name in columns}, kept=np.array(row["kept"], dtype=bool)
        )
        for row in table.to_pylist()
    ]
    return LabelSet(outputs=outputs, provenance=provenance, sha256=hashlib.sha256(data).hexdigest())
