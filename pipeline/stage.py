"""Fetch images, a dataset or a model once, where there is network, so that no job downloads.

Each is taken up where an earlier call ended, and ends with a manifest of digests.
"""

import argparse
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.benchmarks.registry import benchmark_rows
from pipeline.benchmarks.rows import DatasetError, image_reference, select_rows
from pipeline.benchmarks.staging import stage_dataset
from pipeline.planning.config import ConfigError, sweep_spec
from pipeline.planning.prepare import rows_of
from pipeline.plural import plural
from pipeline.records.failure import InfraError
from pipeline.sandbox.fetching import FetchOptions
from pipeline.sandbox.images import ImageStore, verify
from pipeline.sandbox.origin import Origin
from pipeline.sandbox.staging import StagingOptions, stage_images
from pipeline.sandbox.staging_estimate import estimate, require_room
from pipeline.serving.command import located
from pipeline.serving.parts import CHECKOUT
from pipeline.serving.staged import ModelFilesError
from pipeline.serving.staging import stage_model
from pipeline.spec.sweep import BenchmarkSpec, SweepSpec


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (ConfigError, InfraError, DatasetError, ModelFilesError, OSError) as error:
        print(f"stage: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "stage: interrupted; complete files are kept, run the same command to resume",
            file=sys.stderr,
        )
        return 130


def _images(options: argparse.Namespace) -> int:
    rows, folder = _wanted(options)
    store = ImageStore(folder, image_reference)
    folder.mkdir(parents=True, exist_ok=True)
    references = list(dict.fromkeys(image_reference(row) for row in rows))
    if options.verify:
        broken = verify(store, references)
        print(f"{len(references) - len(broken)} of {len(references)} images are complete")
        print("".join(f"broken or missing: {reference}\n" for reference in broken), end="")
        return 1 if broken else 0
    origin = _origin(options)
    staging = StagingOptions(
        jobs=options.jobs,
        pause_s=options.pause,
        fetch=FetchOptions(authfile=options.authfile, https=not options.no_https, tmp=options.tmp),
    )
    missing = store.missing(rows)
    needed = estimate(store, missing, origin, staging)
    print(
        f"{plural(needed.n_images, 'image')} to fetch: about {needed.sif_bytes / 1e9:.1f} GB, and "
        f"{needed.tmp_bytes / 1e9:.1f} GB while unpacking; {needed.free_bytes / 1e9:.1f} GB free"
    )
    if options.dry_run:
        return 0
    if not options.force:
        require_room(needed)
    report = stage_images(
        store, references, origin, options=staging, tell=print, rng=random.Random()
    )
    print(f"{len(report.staged)} staged, {len(report.failed)} failed")
    for reference, complaint in report.failed.items():
        print(f"failed: {reference}: {complaint}", file=sys.stderr)
    return 1 if report.failed else 0


def _wanted(options: argparse.Namespace) -> tuple[Sequence[Mapping[str, Any]], Path]:
    """Return the rows whose images are wanted, and where they go.

    Raises:
        ConfigError: launch would refuse the sweep's words, or no folder is named.
    """
    folder: Path | None = options.to
    rows: Sequence[Mapping[str, Any]]
    if options.sweep is None:
        name = "toy" if options.toy else "swe_bench"
        dataset = str(options.dataset) if options.dataset else None
        rows = benchmark_rows(BenchmarkSpec(name=name, format=name, dataset=dataset))
    else:
        spec = sweep_spec(options.sweep)
        rows = rows_of(spec)
        if folder is None and spec.cluster.images is not None:
            folder = Path(spec.cluster.images)
    if folder is None:
        raise ConfigError("name a target folder: --to FOLDER")
    return select_rows(rows, instance_ids=options.only, limit=options.limit), folder


def _origin(options: argparse.Namespace) -> Origin:
    if options.archives:
        return Origin(kind="archives", place=str(options.archives.resolve()))
    if options.root:
        return Origin(kind="root", place=str(options.root.resolve()))
    return Origin(kind="registry", place=options.mirror or "")


def _dataset(options: argparse.Namespace) -> int:
    staged = stage_dataset(
        options.source,
        options.to,
        revision=options.revision,
        split=options.split,
        drop_ungradable=options.drop_ungradable,
    )
    folder = options.to.parent if options.to.name == staged.file else options.to
    print(f"{folder / staged.file}: {plural(staged.n_rows, 'row')}, sha256 {staged.sha256}")
    if staged.dropped:
        print(
            f"dropped, because no patch can be graded for them: "
            f"{plural(len(staged.dropped), 'row')}"
        )
        for instance_id, reason in staged.dropped.items():
            print(f"  {instance_id}: {reason}")
    return 0


def _model(options: argparse.Namespace) -> int:
    if (options.source is None) == (options.sweep is None):
        raise ConfigError("name one source, or use --sweep with the arguments of a launch")
    if options.source is not None and options.to is None:
        raise ConfigError("name a target folder: --to FOLDER")
    wanted = (
        [(options.source, options.to, options.repo, options.revision)]
        if options.sweep is None
        else _models_of(sweep_spec(options.sweep))
    )
    for source, folder, repo, revision in wanted:
        staged = stage_model(source, folder, repo=repo, revision=revision, tell=print)
        named = f", {staged.repo} at {staged.revision}" if staged.repo else ""
        print(f"{folder}: {plural(len(staged.sha256), 'file')}{named}")
        if not (staged.repo and staged.revision):
            print(
                "only demo sweeps may use it until you name it: --repo OWNER/NAME --revision COMMIT"
            )
        elif options.sweep is None:
            print(f"say model.revision={staged.revision} model.serve.model_path={folder}")
    return 0


def _models_of(spec: SweepSpec) -> list[tuple[str, Path, str, str]]:
    """Return what a sweep's servers need: source, folder, repository and revision of each model.

    Raises:
        ConfigError: a model's revision or folder is not named.
    """
    wanted = []
    for model in spec.models.values():
        if model.kind != "vllm":
            continue
        folder = located(model, CHECKOUT).serve.model_path
        if model.revision in (None, "COMMIT") or folder is None:
            raise ConfigError(
                f"model {model.name}: name its revision and folder in conf/site/mine.yaml "
                "(docs/adding-a-cluster.md), or say model.revision and model.serve.model_path"
            )
        wanted.append((model.repo, Path(folder), model.repo, str(model.revision)))
    return wanted


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipeline.stage", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="images|dataset|model")
    images = commands.add_parser("images", help="container images, as SIF files")
    rows = images.add_mutually_exclusive_group(required=True)
    rows.add_argument("--dataset", type=Path, metavar="FILE", help="rows that name the images")
    rows.add_argument("--toy", action="store_true", help="the toy benchmark's images")
    rows.add_argument(
        "--sweep", nargs="+", metavar="WORD", help="arguments of launch: stage what they need"
    )
    images.add_argument(
        "--to", type=Path, metavar="FOLDER", help="target folder (with --sweep: its cluster.images)"
    )
    images.add_argument("--only", nargs="+", metavar="ID", help="these instances")
    images.add_argument("--limit", type=int, metavar="N", help="the first N instances")
    places = images.add_mutually_exclusive_group()
    places.add_argument("--mirror", metavar="PREFIX", help="registry/path instead of the images'")
    places.add_argument("--archives", type=Path, metavar="FOLDER", help="OCI or Docker archives")
    places.add_argument("--root", type=Path, metavar="PATH", help="one root folder or SIF for all")
    images.add_argument("--jobs", type=int, default=4, metavar="N", help="at a time (default 4)")
    images.add_argument("--pause", type=float, default=0.0, metavar="S", help="between two starts")
    images.add_argument("--authfile", type=Path, metavar="FILE", help="registry passwords")
    images.add_argument("--tmp", type=Path, metavar="FOLDER", help="for unpacking; a local disk")
    images.add_argument("--no-https", action="store_true", help="for a registry on this machine")
    images.add_argument("--verify", action="store_true", help="only check what is there")
    images.add_argument("--dry-run", action="store_true", help="only estimate")
    images.add_argument("--force", action="store_true", help="even if the disk looks too small")
    images.set_defaults(run=_images)
    for name, run, where, what in (
        (
            *("dataset", _dataset, "FOLDER|FILE"),
            "a dataset: FILE, exported FOLDER, FOLDER of Harbor tasks, or OWNER/NAME on the hub",
        ),
        ("model", _model, "FOLDER", "a model: snapshot FOLDER, or OWNER/NAME on the hub"),
    ):
        command = commands.add_parser(name, help=what)
        by_name = run is _model
        command.add_argument("source", nargs="?" if by_name else None, help=what)
        command.add_argument("--to", type=Path, required=not by_name, metavar=where)
        command.add_argument("--revision", metavar="COMMIT", help="of it on the hub")
        command.set_defaults(run=run)
        if not by_name:
            command.add_argument(
                "--split", metavar="NAME", help="the split to stage, if there are several"
            )
            command.add_argument(
                "--drop-ungradable",
                action="store_true",
                help="leave out rows and tasks that cannot be graded, and list them",
            )
        else:
            command.add_argument(
                "--repo", metavar="OWNER/NAME", help="repository that a FOLDER is a snapshot of"
            )
            command.add_argument("--sweep", nargs="+", metavar="WORD", help="launch's words")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
