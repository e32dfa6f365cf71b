"""Door: make up a results folder of any size, with known true effects beside it.

    python -m pipeline.synthetic --runs 18000 --out RESULTS --effect plan_prune.tokens=0.7

Everything in it is labelled `synthetic`. `truth.json` holds the effects that analysis should find.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.analysis.synthetic.folder import write_sweep
from pipeline.analysis.synthetic.truth import SyntheticSweep, sized, with_effects
from pipeline.plural import plural


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 once the folder is whole."""
    parser = argparse.ArgumentParser(prog="pipeline.synthetic", description="Make up a sweep.")
    parser.add_argument("--runs", type=int, required=True, metavar="N", help="about so many runs")
    parser.add_argument("--out", type=Path, required=True, metavar="RESULTS")
    parser.add_argument(
        "--effect",
        action="append",
        default=[],
        metavar="ARM.EFFECT=VALUE",
        help="a true effect against the reference: tokens, steps (ratios), solve (difference) "
        "or refetch (share of steps); may be repeated",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generator")
    args = parser.parse_args(argv)
    try:
        sweep = with_effects(sized(args.runs, seed=args.seed), effects_from(args.effect))
        write_sweep(sweep, args.out)
    except (ValueError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(_summary(sweep, args.out))
    return 0


def effects_from(words: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return `["plan_prune.tokens=0.7"]` as `{"plan_prune": {"tokens": 0.7}}`.

    Raises:
        ValueError: a word of another form.
    """
    effects: dict[str, dict[str, float]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        arm, dot, effect = name.partition(".")
        if not (equals and dot):
            raise ValueError(f"cannot read --effect {word!r}; write plan_prune.tokens=0.7")
        try:
            effects.setdefault(arm, {})[effect] = float(value)
        except ValueError:
            raise ValueError(f"{value!r} in --effect {word!r} is no number") from None
    return effects


def _summary(sweep: SyntheticSweep, out: Path) -> str:
    return (
        f"{plural(sweep.n_runs, 'synthetic run')} in {out}: "
        f"{plural(sweep.n_instances, 'instance')} x "
        f"{plural(len(sweep.seeds), 'seed')} x {plural(len(sweep.models), 'model')} x "
        f"{plural(len(sweep.arms), 'arm')}\n"
        f"next: python -m pipeline.analyze {out}"
    )


if __name__ == "__main__":
    sys.exit(main())
