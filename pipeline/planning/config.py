"""From Hydra overrides to a `SweepSpec`: one compose a sweep, then plain Python.

The only module that knows Hydra and OmegaConf. Errors come out as `ConfigError`, with the known
names and the nearest one, or the quoted form of an override that did not parse.
"""

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.planning.prior import PriorError, prior_rates
from pipeline.planning.prompts_from import PromptsError, with_prompts
from pipeline.planning.words import WordError, misread_numbers, readable_words
from pipeline.records.lock import LockError
from pipeline.spec.parse import SpecError, parsed
from pipeline.spec.sweep import SweepSpec

CONF = Path(__file__).resolve().parents[2] / "conf"


class ConfigError(Exception):
    """The command line or a config file is wrong; the message says what to write instead."""


def sweep_spec(overrides: Sequence[str], *, conf: Path = CONF) -> SweepSpec:
    """Return the sweep that `overrides` describe (`+sweep=demo seeds=[0,1] ...`).

    Raises:
        ConfigError: unknown names, overrides that do not parse, keys that no spec has.
    """
    try:
        words = readable_words(overrides)
    except WordError as error:
        raise ConfigError(str(error)) from None
    misread = list(misread_numbers(conf))
    if misread:
        raise ConfigError("\n".join(misread))
    name = _sweep_name(overrides, conf)
    tree = _compose(words, conf)
    _refuse_both(name, tree, overrides)
    try:
        return parsed(SweepSpec, _spec_data(name, tree))
    except SpecError as error:
        raise ConfigError(
            _misnamed(overrides, tree) or f"sweep {name} is not valid:\n{error}"
        ) from None


_SEVERAL = {"model": "models", "agent": "agents"}
"""What a sweep has one of as the first key, or several of as the second."""


def _refuse_both(name: str, tree: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Raise where an override is for the one model or agent of a sweep that names several."""
    for one, several in _SEVERAL.items():
        chosen = [o for o in overrides if re.match(rf"\+*{one}[=.]", o)]
        if several in tree and chosen:
            keys = ", ".join(f"{several}.{key}" for key in tree[several])
            raise ConfigError(
                f"sweep {name} already names its {several} ({keys}); override those keys instead "
                f"of {chosen[0]!r}"
            )


def known(group: str, *, conf: Path = CONF) -> list[str]:
    """Return the names in a config group, such as `sweep` or `arm`."""
    return sorted(path.stem for path in (conf / group).glob("*.yaml"))


def _spec_data(name: str, tree: dict[str, Any]) -> dict[str, Any]:
    """Turn the composed tree into what `SweepSpec` holds."""
    tree.pop("staged", None)  # models have taken from it what is theirs
    dataset = tree.pop("dataset", None)
    if dataset is not None:
        tree["benchmark"]["dataset"] = dataset
    for one, several in _SEVERAL.items():
        chosen = tree.pop(one, None)
        if several not in tree:
            if not isinstance(chosen, Mapping):
                raise ConfigError(f"no {one} chosen; known {several}: " + ", ".join(known(one)))
            tree[several] = {chosen["name"]: chosen}
    if not tree.get("arms"):
        raise ConfigError(
            f"sweep {name} has no arms; add some with '+arm@arms.NAME=ARM', where ARM is one of "
            + ", ".join(known("arm"))
        )
    for group in ("arms", *_SEVERAL.values()):
        for key, value in tree[group].items():
            if not isinstance(value, Mapping):
                raise ConfigError(f"{group}.{key}={value!r}: to remove it, write '~{group}.{key}'")
        tree[group] = {key: {**value, "name": key} for key, value in tree[group].items()}
    try:
        tree["agents"] = {key: with_prompts(agent) for key, agent in tree["agents"].items()}
        tree["difficulty"] = prior_rates(tree.get("prior"))
    except (PromptsError, PriorError, LockError) as error:
        raise ConfigError(str(error)) from None
    tree["results"] = tree.get("results") or f"results/{name}"
    return {**tree, "name": name}


def _sweep_name(overrides: Sequence[str], conf: Path) -> str:
    names = [m[1] for o in overrides if (m := re.fullmatch(r"\+{0,2}sweep=(\S+)", o))]
    choices = known("sweep", conf=conf)
    if not names:
        raise ConfigError(
            f"name a sweep: python -m pipeline.launch +sweep=NAME; known: {', '.join(choices)}"
        )
    if names[-1] not in choices:
        raise ConfigError(_unknown("sweep", names[-1], choices))
    return str(names[-1])


def _compose(overrides: Sequence[str], conf: Path) -> dict[str, Any]:
    # A nested key may be one that its config file leaves at the spec's default: `++` sets it
    # either way, and a misspelt one is refused by the parser, which knows all of them.
    fixed = [re.sub(r"^(sweep=|[\w]+\.[\w.]+=)", _added, o) for o in overrides]
    for word in overrides:
        group, _, value = word.lstrip("+").partition("=")
        folder = group.partition("@")[0]
        if value in ("", "null") and (conf / folder).is_dir():
            choices = ", ".join(known(folder, conf=conf))
            raise ConfigError(f"{word}: use one of {choices}, or omit the argument")
    try:
        with initialize_config_dir(str(conf), version_base="1.3"):
            config = compose("config", overrides=fixed)
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingConfigException as error:
        raise ConfigError(_missing_config(str(error), conf)) from None
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explained(error, overrides, conf)) from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{conf / 'config.yaml'} does not hold a mapping")
    _refuse_idle(overrides, tree)
    return {str(key): value for key, value in tree.items()}


def _refuse_idle(overrides: Sequence[str], tree: Any) -> None:
    """Raise where an empty mapping is meant to empty another: the two are merged."""
    for word in overrides:
        key, _, value = word.lstrip("+").partition("=")
        if re.fullmatch(r"\{\s*\}", value):
            held = tree
            for part in key.split("."):
                held = held.get(part) if isinstance(held, Mapping) else None
            if held:
                raise ConfigError(
                    f"{word} changes nothing, because it is merged into what is there; remove "
                    f"entries by name: {' '.join(f'~{key}.{name}' for name in held)}"
                )


def _added(key: re.Match[str]) -> str:
    return ("+" if key[0] == "sweep=" else "++") + key[0]


def _missing_config(text: str, conf: Path) -> str:
    """Say which names exist where Hydra says that one does not."""
    found = re.search(r"Could not find '/?([a-z]+)/([^'@]+)'", text)
    if found is None:
        return text
    group, name = found[1], found[2]
    return _unknown(group, name, known(group, conf=conf))


def _unknown(kind: str, name: str, choices: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"no {kind} named {name!r}.{hint} Known: {', '.join(choices)}"


def _explained(error: Exception, overrides: Sequence[str], conf: Path) -> str:
    text = str(error)
    cause = str(error.__cause__ or "")
    if type(error).__name__ == "OverrideParseException":
        bad = str(getattr(error, "override", None) or overrides[-1])
        key, equals, value = bad.partition("=")
        if not equals and not bad.startswith("~"):
            return f"cannot read {bad!r}: an override is key=value, +key=value or ~key"
        # Hydra reads a backslash as one unless a quote follows.
        inside = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + (m[2] and '\\"'), value)
        quoted = shlex.quote(f'{key}="{inside}"')
        return (
            f"cannot read the override {bad!r}. "
            f"A value with special characters is quoted twice: {quoted}"
        )
    if isinstance(error, ConfigCompositionException) and "Could not override" in text:
        unknown = re.search(r"override '([^']+)'", text)
        if unknown is not None:
            return _no_such_key(unknown[1], conf)
    if "Missing mandatory value" in text or "Missing mandatory value" in cause:
        return f"a value must be given: {text.splitlines()[0]}"
    return f"{text.splitlines()[0]}{': ' + cause.splitlines()[0] if cause else ''}"


def _no_such_key(key: str, conf: Path) -> str:
    """Name the nearest key where an override's key does not exist."""
    with initialize_config_dir(str(conf), version_base="1.3"):
        tree = OmegaConf.to_container(compose("config"), resolve=False)
    keys = sorted(_paths(tree))
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"no key {key!r} to override.{hint} "
        f"(A key that does not exist yet is added with +{key}=...)"
    )


def _misnamed(overrides: Sequence[str], tree: Mapping[str, Any]) -> str | None:
    """Say which arm an override was meant for, where the arm is of that override's making.

    What a config file defines has a kind of policy; what a misspelt name made up has none.
    """
    defined = [name for name, arm in tree["arms"].items() if "kind" in (arm.get("policy") or {})]
    for override in overrides:
        found = re.match(r"\+*arms\.([^.=]+)\.", override)
        if found is not None and found[1] not in defined:
            return _unknown("arm", found[1], defined)
    return None


def _paths(tree: Any, prefix: str = "") -> list[str]:
    if not isinstance(tree, Mapping):
        return []
    return [
        path
        for key, value in tree.items()
        for path in (f"{prefix}{key}", *_paths(value, f"{prefix}{key}."))
    ]
