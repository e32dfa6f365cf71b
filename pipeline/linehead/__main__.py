r"""The line head of SWE-Pruner Pro, from recorded runs to a trained head.

    python -m pipeline.linehead label    'trajectories=[FOLDER]' out=labels.parquet
    python -m pipeline.linehead features labels=labels.parquet 'trajectories=[FOLDER]' \
                                         backbone=MODEL out=features
    python -m pipeline.linehead probe    features=features out=probe
    python -m pipeline.linehead train    features=features out=head
    python -m pipeline.linehead import   source=FOLDER backbone=NAME out=head
    python -m pipeline.linehead eval     features=features 'heads=[head]' out=evaluation

Keys are those of conf/linehead/COMMAND.yaml and pipeline/linehead/settings.py. Every command can be
run again: it goes on where it stopped. All but `label` need the extra `pruner` (PyTorch).
"""

import sys
import time
from collections.abc import Callable, Sequence

from pipeline.host.environment import environment
from pipeline.host.interruption import ended_like_ctrl_c
from pipeline.judging.endpoint import NoJudgeError
from pipeline.linehead.config import ConfigError, settings_of
from pipeline.linehead.extra import ExtraMissingError, require_device, require_extra
from pipeline.linehead.settings import (
    EvalJob,
    FeatureJob,
    ImportJob,
    LabelJob,
    ProbeJob,
    TrainJob,
)
from pipeline.records.failure import InfraError


def main(arguments: Sequence[str]) -> int:
    """Run a command; return its exit status."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    command, *overrides = arguments
    if command not in COMMANDS:
        print(f"linehead: no command {command!r}; known: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        with ended_like_ctrl_c():
            return COMMANDS[command](overrides)
    except (ConfigError, ExtraMissingError, NoJudgeError) as error:
        print(f"linehead: {error}", file=sys.stderr)
        return 2
    except (ValueError, OSError, InfraError) as error:
        print(f"linehead {command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; run the same command again: it goes on where it stopped", file=sys.stderr)
        return 130


def _label(overrides: Sequence[str]) -> int:
    from pipeline.linehead.label_job import run_label_job

    printed, complete = run_label_job(settings_of(LabelJob, "label", overrides), environment())
    print("\n".join(printed))
    return 0 if complete else 1


def _features(overrides: Sequence[str]) -> int:
    job = settings_of(FeatureJob, "features", overrides)
    require_extra()
    if job.source == "transformers":
        require_device(job.device)
    from pipeline.linehead.features import run_feature_job

    print(run_feature_job(job, say=_say, now=time.monotonic))
    return 0


def _probe(overrides: Sequence[str]) -> int:
    job = settings_of(ProbeJob, "probe", overrides)
    require_extra(("torch", "safetensors"))
    from pipeline.linehead.probe import run_probe_job

    print("\n".join(run_probe_job(job)))
    return 0


def _train(overrides: Sequence[str]) -> int:
    job = settings_of(TrainJob, "train", overrides)
    require_extra(("torch", "safetensors"))
    require_device(job.device)
    from pipeline.linehead.training import run_train_job

    run_train_job(job, say=_say, now=time.monotonic)
    return 0


def _import(overrides: Sequence[str]) -> int:
    job = settings_of(ImportJob, "import", overrides)
    require_extra(("torch", "safetensors"))
    from pipeline.linehead.published import run_import_job

    print(run_import_job(job))
    return 0


def _eval(overrides: Sequence[str]) -> int:
    job = settings_of(EvalJob, "eval", overrides)
    require_extra(("torch", "safetensors"))
    require_device(job.device)
    from pipeline.linehead.evaluation import run_eval_job

    print("\n".join(run_eval_job(job, environment())))
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "label": _label,
    "features": _features,
    "probe": _probe,
    "train": _train,
    "import": _import,
    "eval": _eval,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
