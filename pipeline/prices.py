"""Write a pricing for conf/pricing from a copy of a public price file.

    python -m pipeline.prices FILE --models NAME... [--as-of DATE] [--out YAML]

FILE is a JSON file in the shape of LiteLLM's model_prices_and_context_window.json: one object a
model with prices per token. It comes from you: nothing is downloaded. A model whose writes have a
price for five minutes and one for an hour becomes two lists. Without --models the models that can
be priced are listed.

Example: python -m pipeline.prices FILE --models claude-sonnet-5-5 --out conf/pricing/mine.yaml
"""

import argparse
import datetime
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline.spec.pricing import pricing_from

PER_TOKENS = 1_000_000
TTL_S = {"anthropic": 300.0, "dashscope": 300.0}
"""Idle seconds after which a provider's ordinary cache is cold, where it promises a time."""


class PriceFileError(Exception):
    """The price file cannot be used; the message says what can."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        models = _read(options.file)
        if not options.models:
            print("\n".join(sorted(name for name, model in models.items() if _is_priced(model))))
            return 0
        as_of = options.as_of or _modified_on(options.file)
        text = pricing_text(models, options.models, as_of=as_of, source=options.file.name)
    except (PriceFileError, OSError, ValueError) as error:
        print(f"prices: {error}", file=sys.stderr)
        return 2
    if options.out is None:
        print(text, end="")
    else:
        options.out.write_text(text, encoding="utf-8")
        print(
            f"wrote {options.out}; use it as pricing={options.out.stem} or --pricing {options.out}"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.prices",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--as-of", help="date of the prices; by default the file's own")
    parser.add_argument("--out", type=Path, metavar="YAML", help="by default: printed")
    return parser


def _read(path: Path) -> Mapping[str, Any]:
    models = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(models, dict):
        raise PriceFileError(f"{path} is not a JSON object of models")
    return models


def pricing_text(
    models: Mapping[str, Any], names: Sequence[str], *, as_of: str, source: str
) -> str:
    """Return the YAML of a pricing with the lists of some models of a price file.

    Raises:
        PriceFileError: a model is not in the file, or has no price for input and output.
    """
    lists: dict[str, dict[str, float]] = {}
    notes: list[str] = []
    for name in names:
        if not _is_priced(models.get(name)):
            near = [m for m in models if name in m and _is_priced(models[m])][:8]
            hint = f"; similar names: {', '.join(near)}" if near else ""
            raise PriceFileError(f"{source} has no prices for {name}{hint}")
        lists |= dict(_lists_of(name, models[name]))
        notes += _notes_on(name, models[name])
    data = {
        "name": "-".join(_slug(name) for name in names),
        "as_of": as_of,
        "currency": "USD",
        "per_tokens": PER_TOKENS,
        "lists": lists,
    }
    pricing_from(data)
    head = [f"# Prices of {', '.join(names)} from {source}, {as_of}.", *notes]
    return "\n".join(head) + "\n" + yaml.safe_dump(data, sort_keys=False)


def _is_priced(model: Any) -> bool:
    return isinstance(model, dict) and all(
        isinstance(model.get(key), int | float) and math.isfinite(model[key])
        for key in ("input_cost_per_token", "output_cost_per_token")
    )


def _lists_of(name: str, model: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the list, or with two write prices the two lists, of one model."""
    full = model["input_cost_per_token"]
    # Some entries say 0 for "no price of its own".
    write = model.get("cache_creation_input_token_cost") or full
    for_an_hour = model.get("cache_creation_input_token_cost_above_1hr")
    prices = {
        "input": full,
        "cached": model.get("cache_read_input_token_cost", full),
        "output": model["output_cost_per_token"],
        "write": write,
    }
    base = {key: round(value * PER_TOKENS, 9) for key, value in prices.items()}
    base["min_prefix"] = model.get("prompt_cache_min_tokens", 0)
    ttl = TTL_S.get(str(model.get("litellm_provider")))
    slug = _slug(name)
    if for_an_hour is None:
        yield slug, base if ttl is None else {**base, "ttl_s": ttl}
        return
    yield f"{slug}_5m", {**base, "ttl_s": 300.0}
    yield f"{slug}_1h", {**base, "write": round(for_an_hour * PER_TOKENS, 9), "ttl_s": 3600.0}


def _notes_on(name: str, model: Mapping[str, Any]) -> list[str]:
    """Return what of a model's prices a list cannot say."""
    notes = []
    tiers = sorted(
        {int(found[1]) for key in model if (found := re.search(r"input.*_above_(\d+)k_", key))}
    )
    if tiers:
        notes.append(f"# {name}: prompts above {tiers[0]}k tokens cost more; not in the list.")
    if "off_peak_pricing" in model:
        notes.append(f"# {name}: cheaper at some hours; not in the list.")
    if model.get("cache_read_input_token_cost") is None:
        notes.append(f"# {name}: no price for cached tokens in the file; billed in full.")
    return notes


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.rpartition("/")[2].lower()).strip("_")


def _modified_on(path: Path) -> str:
    stamp = path.stat().st_mtime
    return datetime.datetime.fromtimestamp(stamp, tz=datetime.UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main())
